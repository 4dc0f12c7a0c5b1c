"""What ``--credentials lake_chaos_hook:mortal`` does to the processes of a backfill: one of them is killed at a step.

Steps are the calls that change a target, before and after each: those of files and of the ledger, and those by which
tables are created, changed and committed to. A death is a file in the directory that ``DEATHS`` names, called
``ROLE-STEP-NAME``: the first process of that role that comes so far takes the file away, and dies. In the role
``executor`` a worker kills its executor. Where the name begins with ``all``, a driver dies together with its JVM; where
it begins with ``jvm``, that dies alone.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from segreader.storage.target.local import LocalTarget

DEATHS = "SEGREADER_LAKE_DEATHS"
"""The variable that names the directory of deaths."""

DRIVER = "SEGREADER_LAKE_DRIVER"
"""The variable that has the process id of a driver without Spark."""

_steps: dict[str, int] = {}
_counted = [0]
_is_armed = [False]


def mortal(location: str) -> dict[str, object]:
    """No storage options; the process that asks is mortal from now on."""
    arm()
    return {}


def arm() -> None:
    """Make the process mortal."""
    if _is_armed[0]:
        return
    _is_armed[0] = True
    _wrap_files()
    with suppress(ImportError):
        _wrap_delta()
    with suppress(ImportError):
        _wrap_iceberg()


def steps_so_far() -> int:
    """How many this process has made."""
    return _counted[0]


def _wrap_files() -> None:
    target: Any = LocalTarget
    for name in ("put_if_absent", "move"):
        setattr(target, name, _stepping(getattr(target, name)))
    create, delete = target.create, target.delete

    @contextmanager
    def created(self: Any, name: str) -> Iterator[Any]:
        step()
        with create(self, name) as file:
            yield file
            step()
        step()

    def deleted(self: Any, names: Any) -> None:
        for name in names:
            step()
            delete(self, [name])

    target.create, target.delete = created, deleted


def _wrap_delta() -> None:
    from deltalake import DeltaTable
    from deltalake.table import TableAlterer

    table: Any = DeltaTable
    table.create_write_transaction = _stepping(table.create_write_transaction)
    table.create = classmethod(_stepping(table.create.__func__))
    alterer: Any = TableAlterer
    alterer.add_columns = _stepping(alterer.add_columns)


def _wrap_iceberg() -> None:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.io.pyarrow import PyArrowFile

    catalog, file = _classes(SqlCatalog, PyArrowFile)
    for name in ("commit_table", "create_table", "create_namespace"):
        setattr(catalog, name, _stepping(getattr(catalog, name)))
    file.create = _stepping(file.create)  # of metadata: manifests, their list, the table's


def _classes(*classes: Any) -> tuple[Any, ...]:
    return classes


def _stepping(call: Callable[..., Any]) -> Callable[..., Any]:
    def stepping(*arguments: Any, **named: Any) -> Any:
        step()
        result = call(*arguments, **named)
        step()
        return result

    return stepping


def step() -> None:
    """Die here if this is the step of a death of this role."""
    _counted[0] += 1
    role = _role()
    with suppress(FileNotFoundError, KeyError):
        for name in os.listdir(os.environ[DEATHS]):
            whose, number, _ = name.split("-", 2)
            if whose == role or (whose == "executor" and role == "worker"):
                _steps[name] = _steps.get(name, 0) + 1
                if _steps[name] > int(number):
                    _die(Path(os.environ[DEATHS], name), whose)


def _role() -> str:
    if (driver := os.environ.get(DRIVER)) is not None:
        return "driver" if int(driver) == os.getpid() else "worker"
    from pyspark import TaskContext

    return "driver" if TaskContext.get() is None else "worker"


def _die(death: Path, whose: str) -> None:
    with suppress(FileNotFoundError):
        death.unlink()  # one process alone
        me, name = os.getpid(), death.name.split("-", 2)[2]
        if whose == "executor":  # the JVM that started the daemon that started this worker
            os.kill(_parent(_parent(me)), signal.SIGKILL)
        elif name.startswith("jvm"):
            for child in (int(path.name) for path in Path("/proc").glob("[0-9]*")):
                with suppress(OSError):
                    if _parent(child) == me:
                        os.kill(child, signal.SIGKILL)
        elif name.startswith("all"):
            os.killpg(0, signal.SIGKILL)
        else:
            os.kill(me, signal.SIGKILL)


def _parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
