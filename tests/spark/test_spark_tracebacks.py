"""What Spark calls ends the traceback of an error where Spark would show the variables of every frame."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterator

import pytest
from canaries import CANARIES, leaks

from segreader.backfill.task import SplitTask
from segreader.backfill.verify import VerifyTask
from segreader.errors import AccessDeniedError
from segreader.spark.batch import FrameTask, SegmentReader
from segreader.spark.source import SegmentSource
from segreader.spark.stream import SegmentStreamReader
from segreader.spark.worker import SHOWS_LOCALS, without_locals


def _deep(count: int) -> None:
    given = CANARIES["secret"]
    try:
        raise ValueError(given)
    except ValueError as error:
        raise AccessDeniedError(f"refused {count}") from error


@without_locals
def _called(count: int) -> None:
    _deep(count)


@without_locals
def _generated(count: int) -> Iterator[int]:
    yield 1
    _deep(count)


def _shown(error: BaseException) -> str:
    """As PySpark 4.3 shows it."""
    return "".join(traceback.TracebackException.from_exception(error, compact=True, capture_locals=True).format())


def _failures() -> Iterator[BaseException]:
    with pytest.raises(AccessDeniedError) as caught:
        _called(7)
    yield caught.value
    with pytest.raises(AccessDeniedError) as caught:
        list(_generated(7))
    yield caught.value


def test_variables_of_frames_below_are_not_in_an_error_where_they_would_be_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(SHOWS_LOCALS, "1")
    for error in _failures():
        told = _shown(error)
        assert not leaks(told)
        assert "AccessDeniedError: refused 7" in told
        assert "_deep" not in told.replace("_deep(count)", "")


def test_elsewhere_an_error_keeps_its_traceback_and_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SHOWS_LOCALS, raising=False)
    for error in _failures():
        assert isinstance(error.__cause__, ValueError)
        assert "in _deep" in _shown(error)


@pytest.mark.parametrize(
    "called",
    [
        *(
            SegmentSource.__init__,
            SegmentReader.partitions,
            SegmentReader.read,
            FrameTask.records,
            FrameTask.counts,
            SplitTask.of_spark,
            VerifyTask.__call__,
        ),
        *(SegmentStreamReader.initialOffset, SegmentStreamReader.latestOffset, SegmentStreamReader.partitions),
        *(SegmentStreamReader.prepareForTriggerAvailableNow, SegmentStreamReader.reportLatestOffset),
        SegmentStreamReader.read,
    ],
)
def test_all_that_spark_calls_and_that_asks_storage_is_cut(called: object) -> None:
    assert "without_locals" in inspect.getsource(inspect.unwrap(called))  # type: ignore[arg-type]


def test_spark_still_sees_how_many_arguments_a_method_takes() -> None:
    assert list(inspect.signature(SegmentStreamReader.latestOffset).parameters) == ["self", "start", "limit"]
