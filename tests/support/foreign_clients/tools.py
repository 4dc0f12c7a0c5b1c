"""Kafka's own tools with the arguments that a shell gives them, in one Java process: its start is what takes long."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

from foreign_clients.conversation import PARTITIONS, Conversation
from kafka_kit.jars import BROKER, fetch_jars
from kafka_kit.java import JavaReader
from kafka_kit.node import SMALL_JVM, java_command
from servers.process import dies_with_us

_SOURCE = Path(__file__).with_name("Tools.java")
_JVM = ("-Xmx256m", *SMALL_JVM[1:])
_TOOLS = "org.apache.kafka.tools"
_PRINTED = [
    part
    for name in ("partition", "offset", "timestamp", "key", "headers")
    for part in ("--formatter-property", f"print.{name}=true")
]


class Tools:
    """The process.

    Args:
        directory: for settings.
        reader: the Java consumer.
    """

    def __init__(self, process: subprocess.Popen[str], directory: Path, reader: JavaReader) -> None:
        self._process = process
        self._directory = directory
        self._reader = reader

    def run(self, main: str, *arguments: str, text: str = "") -> list[str]:
        """The lines that a tool prints, each after the tool's name.

        Args:
            text: what it reads from its input.

        Raises:
            RuntimeError: it ended with another status than 0.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"main": main, "arguments": arguments, "input": text}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if answer["status"] != 0:
            raise RuntimeError(f"{main} ended with {answer['status']}:\n{answer['out']}{answer['err'][-2000:]}")
        return [f"{main.rpartition('.')[2]} {line}" for line in answer["out"].splitlines()]

    def console_consumer(self, wanted: Conversation) -> list[str]:
        """``kafka-console-consumer`` without a group of its own, and with one by both group protocols."""
        lines = []
        for kind, protocol in (("group", "classic"), ("group-848", "consumer")):
            group = wanted.group if kind == "group" else f"{wanted.group}-848"
            found = self.run(
                f"{_TOOLS}.consumer.ConsoleConsumer",
                *self._where(wanted, f"group.protocol={protocol}\nisolation.level=read_committed\n"),
                *("--topic", wanted.topic, "--from-beginning", "--group", group),
                *("--max-messages", str(wanted.count), "--timeout-ms", "60000", *_PRINTED),
            )
            lines += [_as_printed(kind, line) for line in found]
        return lines

    def console_producer(self, wanted: Conversation) -> list[str]:
        """``kafka-console-producer``: it has no word for a partition, so the key decides."""
        texts = [f"h:1\tkey-{number}\twritten-{number}\n" for number in range(wanted.written)]
        reader = ("--reader-property", "parse.headers=true", "--reader-property", "parse.key=true")
        return self.run(
            f"{_TOOLS}.ConsoleProducer",
            *self._where(wanted),
            *("--topic", wanted.into, "--sync", *reader),  # else records are on their way when it ends
            text="".join(texts),
        )

    def share_consumer(self, wanted: Conversation) -> list[str]:
        """``kafka-console-share-consumer`` (KIP-932); it is given what is not committed, too."""
        found = self.run(
            f"{_TOOLS}.consumer.ConsoleShareConsumer",
            *self._where(wanted),
            *("--topic", wanted.topic, "--group", wanted.group, "--max-messages", str(wanted.everything - PARTITIONS)),
            *("--timeout-ms", "60000", *_PRINTED),
        )
        return [_as_printed("share", line) for line in found]

    def begin_share_group(self, bootstrap: str, group: str) -> None:
        """Let a share group begin with the first record: it is a setting of the group, and an administrator's."""
        self.run(
            "kafka.admin.ConfigCommand",
            *("--bootstrap-server", bootstrap, "--alter", "--entity-type", "groups", "--entity-name", group),
            *("--add-config", "share.auto.offset.reset=earliest"),
        )

    def consumer(self, wanted: Conversation) -> list[str]:
        """The consumer's API, by both levels of isolation."""
        lines = []
        for level in ("read_committed", "read_uncommitted"):
            found = self._reader.read(wanted.bootstrap, wanted.topic, isolation=level, settings=wanted.java())
            lines += [f"{level} {one.partition} {one}" for one in found]
        return lines

    def describe(self, wanted: Conversation) -> list[str]:
        """What the tools say of topics, offsets, groups, configs and directories."""
        where = self._where(wanted)
        offsets = ["--topic", wanted.topic, "--time"]
        lines = self.run(f"{_TOOLS}.TopicCommand", *where, "--describe", "--topic", wanted.topic)
        for time in ("-1", "-2", "-3", "-4", "-5"):
            lines += self.run(f"{_TOOLS}.GetOffsetShell", *where, *offsets, time)
        lines += self.run(
            f"{_TOOLS}.consumer.group.ConsumerGroupCommand",
            *where,
            "--describe",
            "--group",
            f"{wanted.topic}-described",
        )
        lines += self.run(
            "kafka.admin.ConfigCommand",
            *where,
            "--describe",
            "--entity-type",
            "topics",
            "--entity-name",
            wanted.topic,
            "--all",
        )
        lines += self.run(f"{_TOOLS}.AclCommand", *where, "--list", "--topic", wanted.topic)
        lines += self.run(f"{_TOOLS}.LogDirsCommand", *where, "--describe", "--topic-list", wanted.topic)
        producers = ("describe-producers", "--topic", wanted.topic, "--partition", "0")
        return lines + self.run(f"{_TOOLS}.TransactionsCommand", *where, *producers)

    def _where(self, wanted: Conversation, more: str = "") -> tuple[str, ...]:
        settings = self._directory / "client.properties"
        settings.write_text("".join(f"{name}={value}\n" for name, value in wanted.java().items()) + more)
        return ("--bootstrap-server", wanted.bootstrap, "--command-config", str(settings))


def _as_printed(kind: str, line: str) -> str:
    """A line of a console consumer, its partition after the kind."""
    fields = line.split(" ", 1)[1].split("\t")
    (partition,) = [one.removeprefix("Partition:") for one in fields if one.startswith("Partition:")]
    return " ".join([kind, partition, *fields])


@contextlib.contextmanager
def tools(directory: Path, reader: JavaReader) -> Iterator[Tools]:
    """Kafka's tools at hand until the block ends.

    Raises:
        NotAvailableError: the jars cannot be had on this machine.
    """
    command = java_command(fetch_jars(BROKER), _JVM, str(_SOURCE))
    with (directory / "tools.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            preexec_fn=dies_with_us,
        )
    try:
        yield Tools(process, directory, reader)
    finally:
        process.kill()
        process.communicate()  # closes its pipes, too
