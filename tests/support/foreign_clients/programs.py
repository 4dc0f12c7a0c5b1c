"""Foreign clients in other languages: fetched and built once, into the directory of ``kafka_kit.jars``."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import confluent_kafka
from foreign_clients.conversation import PARTITIONS, Conversation
from kafka_kit.jars import cache
from servers.process import NotAvailableError, dies_with_us

_HERE = Path(__file__).parent
_BUILD_S = 900
_TALK_S = 120
_DEBIAN = ("kcat", "librdkafka1", "libyajl2")
_FORMAT = "%p %o %T %k %s %h\\n"


def go_client(name: str, wanted: Conversation, *, skips_nothing: bool = False) -> list[str]:
    """franz-go, sarama or segmentio.

    Args:
        skips_nothing: whether it gives aborted records and markers like others.

    Raises:
        NotAvailableError: Go is not here, or its modules cannot be had.
    """
    return _talked([str(_go_programs() / name), wanted.argument(skips_nothing=skips_nothing)])


def kafkajs(wanted: Conversation) -> list[str]:
    """kafkajs.

    Raises:
        NotAvailableError: Node.js is not here, or its package cannot be had.
    """
    return _talked(["node", str(_node_program()), wanted.argument()])


def kcat(wanted: Conversation) -> list[str]:
    """kcat, as it is called in a shell.

    Raises:
        NotAvailableError: Debian's package cannot be had.
    """
    place = _kcat()
    libraries = next(place.glob("usr/lib/*-linux-gnu"))
    settings = {**wanted.librdkafka(), "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    options = [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]

    def run(*arguments: str, text: str = "") -> list[str]:
        command = [str(place / "usr" / "bin" / "kcat"), "-q", "-m", "30", *options, *arguments]
        return _talked(command, text=text, env={"LD_LIBRARY_PATH": f"{_librdkafka()}:{libraries}"})

    lines = run("-C", "-t", wanted.topic, "-o", "beginning", "-e", "-f", f"read {_FORMAT}")
    lines += run("-G", wanted.group, "-c", str(wanted.count), "-f", f"group {_FORMAT}", wanted.topic)
    for number in range(PARTITIONS):
        lines += [f"offsets {line}" for line in run("-Q", "-t", f"{wanted.topic}:{number}:-1")]
        texts = [f"key:written-{one}\n" for one in range(number, wanted.written, PARTITIONS)]
        run("-P", "-t", wanted.into, "-p", str(number), "-K", ":", "-H", "h=1", text="".join(texts))
    return lines


@functools.cache
def _librdkafka() -> Path:
    """That of confluent-kafka under the name that kcat asks for: Debian's cannot log in at Kafka 4."""
    found = next((Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka-*"), None)
    if found is None:
        raise NotAvailableError("kcat needs the librdkafka of confluent-kafka's wheel, and this is another build")

    def build(place: Path) -> None:
        shutil.copy(found, place / "librdkafka.so.1")  # no link: this environment may be gone before its cache

    return _made("foreign-librdkafka-copy", [found], build)


def _talked(command: Sequence[str], *, text: str = "", env: dict[str, str] | None = None) -> list[str]:
    done = subprocess.run(
        command,
        input=text,
        capture_output=True,
        text=True,
        timeout=_TALK_S,
        env={**os.environ, **(env or {})},
        preexec_fn=dies_with_us,
    )
    if done.returncode:
        raise RuntimeError(f"{Path(command[0]).name} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout.splitlines()


@functools.cache
def _go_programs() -> Path:
    go = shutil.which("go")
    if go is None:
        raise NotAvailableError("franz-go, sarama and segmentio are built with Go, and no Go is here")

    def build(place: Path) -> None:
        _run([go, "build", "-mod=readonly", "-o", f"{place}/", "./..."], _HERE / "go")

    return _made("foreign-go", sorted((_HERE / "go").rglob("*.*")), build)


@functools.cache
def _node_program() -> Path:
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise NotAvailableError("kafkajs runs on Node.js, and no node and npm are here")

    def build(place: Path) -> None:
        shutil.copytree(_HERE / "node", place, dirs_exist_ok=True)
        _run([npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"], place)

    return _made("foreign-node", sorted((_HERE / "node").iterdir()), build) / "client.js"


@functools.cache
def _kcat() -> Path:
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise NotAvailableError("kcat comes from Debian, and no apt-get is here to fetch it with")

    def build(place: Path) -> None:
        with tempfile.TemporaryDirectory() as parts:
            _run(["apt-get", "download", *_DEBIAN], Path(parts))
            for package in Path(parts).glob("*.deb"):
                _run(["dpkg-deb", "-x", str(package), str(place)], Path(parts))

    return _made("foreign-kcat", [], build)


def _made(name: str, sources: Sequence[Path], build: Callable[[Path], None]) -> Path:
    """A directory that ``build`` fills, once for these sources, even if several processes try at the same time."""
    digest = hashlib.sha256(b"\0".join(one.read_bytes() for one in sources if one.is_file())).hexdigest()[:12]
    place = cache() / f"{name}-{digest}"
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=f"{place.name}.") as parts:
            made = Path(parts) / "made"
            made.mkdir()
            try:
                build(made)
            except (subprocess.SubprocessError, OSError) as error:
                said = getattr(error, "stderr", None) or str(error)
                raise NotAvailableError(f"{name} cannot be fetched and built: {said.strip()[-300:]}") from error
            try:
                made.rename(place)
            except OSError:
                if not place.is_dir():
                    raise  # else another process was first, with the same files
    return place


def _run(command: Sequence[str], directory: Path) -> None:
    subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True, timeout=_BUILD_S)
