"""CPU of other clients' decoders beside ours, on the same files: ``make bench-clients``.

Java's kafka-clients and franz-go make their own records of what a Fetch answer would hold; librdkafka cannot be given
a file, and is measured over a broker by ``make bench-out``. What is measured is in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from benchmarks.debian import NotAvailableError
from benchmarks.decode import add_turns, drain
from benchmarks.inputs import SHAPES, Input, write_inputs
from benchmarks.native import demand_native
from benchmarks.rows import MIB, Row, parse_options, print_machine, run
from segreader import scan

_OTHERS = Path(__file__).parent / "others"
_JVM = ("-Xms512m", "-Xmx512m")
JAVA_TARGET = 1.05
WARM_UP_S = {"kafka-clients": 3.0, "franz-go": 0.3}
"""By then Java has compiled all that it reads an input with."""


class Client:
    """A process that reads files when it is asked to."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def read(self, source: Input, times: int) -> float:
        """CPU seconds of all its threads for reading a file so often.

        Raises:
            ValueError: it does not see every record.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{source.log}\t{times}\n")
        self._process.stdin.flush()
        records, nanoseconds = map(int, self._process.stdout.readline().split())
        if records != source.records:
            raise ValueError(f"{self._command[0]} sees {records} of {source.records} records")
        return nanoseconds / 1e9

    def warm_up(self, source: Input, seconds: float) -> None:
        """Read again and again for a while."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.read(source, 3)

    def once(self, source: Input) -> float:
        """CPU seconds of a process that starts, reads a file once, and ends."""
        return cpu_of(self._command, f"{source.log}\t1\n")

    def close(self) -> None:
        """End it."""
        self._process.communicate()


def cpu_of(command: Sequence[str], text: str = "") -> float:
    """CPU seconds, user and system, of a process from its start to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, input=text, stdout=subprocess.DEVNULL, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def java_client(place: Path) -> Client:
    """Java's kafka-clients, from Maven Central.

    Raises:
        NotAvailableError: there is no compiler for Java, or no jar.
    """
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
    from kafka_kit.jars import BROKER, fetch_jars
    from servers.process import NotAvailableError as NotFetchedError

    compiler, java = shutil.which("javac"), shutil.which("java")
    if not (compiler and java):
        raise NotAvailableError("Java's kafka-clients: no javac is here")
    try:
        jars = f"{fetch_jars(BROKER)}/*"
    except NotFetchedError as error:
        raise NotAvailableError(f"Java's kafka-clients: {error}") from None
    subprocess.run([compiler, "-cp", jars, "-d", str(place), str(_OTHERS / "Decode.java")], check=True)
    return Client([java, *_JVM, "-Dslf4j.internal.verbosity=ERROR", "-cp", f"{place}:{jars}", "Decode"])


def go_client(place: Path) -> Client:
    """franz-go, from the Go module proxy.

    Raises:
        NotAvailableError: there is no Go, or it cannot build it.
    """
    go = shutil.which("go")
    if not go:
        raise NotAvailableError("franz-go: no Go is here")
    built = place / "decode"
    done = subprocess.run([go, "build", "-o", str(built), "."], cwd=_OTHERS, capture_output=True, text=True)
    if done.returncode:
        raise NotAvailableError(f"franz-go: {done.stderr.strip()[-300:]}")
    return Client([str(built)])


def read_ours(source: Input, times: int) -> float:
    """The same by ``scan``, with its defaults, in this process."""
    began = time.process_time()
    for _ in range(times):
        drain(scan(source.location, kernel="native").to_batches())
    return time.process_time() - began


def measure(place: Path, codecs: Sequence[str], body_bytes: int, rounds: int, times: int) -> Iterator[Row]:
    """All of them take turns, forwards and backwards, after each has warmed up."""
    with contextlib.ExitStack() as stack:
        clients: dict[str, Client] = {}
        for name, start in (("kafka-clients", java_client), ("franz-go", go_client)):
            try:
                clients[name] = start(place)
            except NotAvailableError as error:
                print(f"not measured: {error}")
            else:
                stack.callback(clients[name].close)
        print("not measured here: librdkafka reads from brokers only: make bench-out\n")
        for shape in SHAPES:
            for codec, source in write_inputs(place, shape, codecs, body_bytes).items():
                cell = f"{shape.name}, {codec}"
                yield from _measure_turns(cell, clients, source, rounds, times)
                if (shape, codec) == (SHAPES[1], "lz4"):
                    yield from _measure_once(cell, clients, source, rounds)
                source.remove()


def _measure_turns(cell: str, clients: dict[str, Client], source: Input, rounds: int, times: int) -> Iterator[Row]:
    for name, client in clients.items():
        client.warm_up(source, WARM_UP_S[name])
    read_ours(source, 1)
    gc.freeze()
    seconds: dict[str, list[float]] = {name: [] for name in ("ours", *clients)}
    for index in range(rounds):
        for name in seconds if index % 2 else reversed(seconds):
            used = clients[name].read(source, times) if name in clients else read_ours(source, times)
            seconds[name].append(used)
    rate = {name: times * source.payload_bytes / median(used) / 1e6 for name, used in seconds.items()}
    for name in clients:
        ratios = tuple(theirs / ours for theirs, ours in zip(seconds[name], seconds["ours"], strict=True))
        target = JAVA_TARGET if name == "kafka-clients" else None
        note = f"{rate[name]:.0f} and {rate['ours']:.0f} MB/s of records"
        yield Row(f"{cell}: {name} / ours", ratios, target, "x", note, is_least=True)


def _measure_once(cell: str, clients: dict[str, Client], source: Input, rounds: int) -> Iterator[Row]:
    program = "import sys, segreader\nfor _ in segreader.scan(sys.argv[1]).to_batches(): pass"
    command = [sys.executable, "-c", program, str(source.location)]
    ours = [cpu_of(command) for _ in range(rounds)]
    for name, client in clients.items():
        theirs = [client.once(source) for _ in range(rounds)]
        ratios = tuple(one / two for one, two in zip(theirs, ours, strict=True))
        note = f"{median(theirs):.2f} and {median(ours):.2f} s, from start to end"
        yield Row(f"{cell}: {name} / ours, whole process", ratios, None, "x", note)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clients", description="Decoding beside other clients.")
    add_turns(parser, times=6)
    arguments = parse_options(parser, rounds=3, times=3)
    demand_native()
    print_machine("pyarrow")
    with tempfile.TemporaryDirectory(prefix="segreader-bench-") as place:
        body_bytes = arguments.size * MIB
        figures = measure(Path(place), arguments.codec, body_bytes, arguments.rounds, arguments.times)
        run(figures, arguments.json)


if __name__ == "__main__":
    main()
