"""Errors for Spark without the variables of the frames below: those may hold what signs a request.

With ``spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled`` (Spark 4.3) a Python worker writes the local
variables of every frame into the message of an error, and that goes to the driver, its event log and its pages. Values
of ours mask secrets; those of cloud clients and of users' providers do not. What our errors know is in their text.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar, cast

SHOWS_LOCALS: Final = "SPARK_TRACEBACK_WITH_LOCALS"
"""The variable that Spark sets in the workers that do so. Source: PySpark 4.3 ``handle_worker_exception``."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


def without_locals(called: Callable[_P, _R]) -> Callable[_P, _R]:
    """The function that Spark calls, whose errors end their traceback here where Spark would show variables."""
    if inspect.isgeneratorfunction(called):

        @wraps(called)
        def generate(*args: _P.args, **kwargs: _P.kwargs) -> Iterator[Any]:
            try:
                yield from called(*args, **kwargs)
            except Exception as error:
                if not os.environ.get(SHOWS_LOCALS):
                    raise
                raise error.with_traceback(None) from None  # a context manager would put the traceback back

        return cast(Callable[_P, _R], generate)

    @wraps(called)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return called(*args, **kwargs)
        except Exception as error:
            if not os.environ.get(SHOWS_LOCALS):
                raise
            raise error.with_traceback(None) from None

    return call
