"""``verify --metrics``: what Prometheus is told, and how it ends."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from servers.process import free_port

from segreader.cli.main import main
from segreader.errors import StorageError
from segreader.report.exporter import VerifyExporter
from segreader.report.model import BucketReport, read_report
from segreader.stored.source import LocationSource

pytest.importorskip("prometheus_client", reason="metrics need prometheus-client")

CORPUS = Path(__file__).parents[2] / "fixtures" / "corpus"


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    [partition] = (CORPUS / "tv2" / "remote").rglob("txn-span-0-*")
    shutil.copytree(partition, tmp_path / partition.name)
    return tmp_path


def _samples(exporter: VerifyExporter) -> dict[str, float]:
    return {
        sample.name + "".join(f" {value}" for value in sample.labels.values() if len(value) != 22): sample.value
        for family in exporter.collect()
        for sample in family.samples
    }


def _look(place: Path) -> BucketReport:
    return read_report(LocationSource(str(place)))


def test_metrics_have_the_last_offset_its_time_and_its_age(bucket: Path) -> None:
    exporter = VerifyExporter(lambda: _look(bucket), 1, clock=lambda: 2_000_000_000.0)
    exporter.run(lambda _: exporter.stop())
    found = _samples(exporter)

    report = _look(bucket)
    [partition] = report.partitions
    assert found["segreader_bucket_last_offset txn-span 0"] == 180
    assert partition.last_ms is not None
    assert found["segreader_bucket_last_record_timestamp_seconds txn-span 0"] == partition.last_ms / 1000
    assert found["segreader_bucket_last_record_age_seconds txn-span 0"] == 2_000_000_000 - partition.last_ms / 1000
    assert found["segreader_bucket_orphan_bytes txn-span 0"] == 0
    assert found["segreader_bucket_findings hole error"] == 0
    assert found["segreader_verify_up"] == 1


def test_metrics_count_findings_by_code_and_the_bytes_of_orphans(bucket: Path) -> None:
    [*_, log] = sorted(bucket.rglob("*.log"))[:4]
    (log.parent / "notes.txt").write_bytes(b"12345")
    log.unlink()
    exporter = VerifyExporter(lambda: _look(bucket), 1)
    exporter.run(lambda _: exporter.stop())
    found = _samples(exporter)

    left = sum(one.stat().st_size for one in log.parent.iterdir() if one.name.startswith(log.stem))
    assert found["segreader_bucket_findings missing-log error"] == 1
    assert found["segreader_bucket_findings foreign-object warning"] == 1
    assert found["segreader_bucket_orphan_bytes txn-span 0"] == left + 5


def test_a_run_that_fails_leaves_the_numbers_of_the_one_before(bucket: Path) -> None:
    runs: Iterator[int] = iter(range(3))

    def look() -> BucketReport:
        if next(runs) == 1:
            raise StorageError("the store is away", source="s3://logs")
        return _look(bucket)

    told: list[str] = []

    def tell(line: str) -> None:
        told.append(line)
        if len(told) == 2:
            exporter.stop()

    exporter = VerifyExporter(look, 0, clock=lambda: 5.0)
    exporter.run(tell)
    found = _samples(exporter)

    assert told[1].startswith("error: s3://logs: the store is away")
    assert found["segreader_verify_up"] == 0
    assert found["segreader_verify_runs_total ok"] == 1
    assert found["segreader_verify_runs_total failed"] == 1
    assert found["segreader_bucket_last_offset txn-span 0"] == 180


def test_a_first_run_that_fails_ends_the_program(tmp_path: Path) -> None:
    exporter = VerifyExporter(lambda: _look(tmp_path / "nothing"), 1)

    with pytest.raises(Exception, match="nothing"):
        exporter.run(lambda _: None)


def test_a_rhythm_without_metrics_is_a_usage_error(bucket: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(bucket), "--every", "5m"]) == 2
    assert "--metrics" in capsys.readouterr().err


def test_sigterm_during_a_run_ends_it_at_the_next_segment(bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Path] = []

    def look(source: LocationSource, *arguments: object, tick: Callable[[object], None], **options: object) -> None:
        looked.append(bucket)
        tick(None)
        os.kill(os.getpid(), signal.SIGTERM)
        tick(None)
        raise AssertionError("it went on")

    monkeypatch.setattr("segreader.report.model.read_report", look)
    before = signal.getsignal(signal.SIGTERM)

    assert main(["verify", str(bucket), "--metrics", f"127.0.0.1:{free_port()}"]) == 0
    assert looked == [bucket]
    assert signal.getsignal(signal.SIGTERM) == before


def test_an_address_that_is_taken_is_named(bucket: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        address = f"127.0.0.1:{one.getsockname()[1]}"
        code = main(["verify", str(bucket), "--metrics", address])

    assert code == 2
    assert f"{address}: the address for metrics cannot be had" in capsys.readouterr().err


def test_without_prometheus_client_the_command_to_install_it_is_named(
    bucket: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)

    assert main(["verify", str(bucket), "--metrics", ":9405"]) == 2
    assert "pip install 'prometheus-client" in capsys.readouterr().err


@pytest.mark.skipif(os.name != "posix", reason="SIGTERM is of POSIX")
def test_metrics_are_served_until_sigterm_which_ends_with_exit_code_0(bucket: Path) -> None:
    port = free_port()
    program = "import sys; from segreader.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "verify", str(bucket), "--metrics", f"127.0.0.1:{port}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline() == f"metrics at http://127.0.0.1:{port}/metrics, verified every 300 s\n"
            assert "0 errors, 0 warnings" in process.stderr.readline()
            for _ in range(100):
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
                    text = answer.read().decode()
                if "segreader_verify_last_run_duration_seconds" in text:
                    break
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()

    assert 'segreader_bucket_last_offset{partition="0",topic="txn-span"' in text
