"""One Kafka node in a directory of its own: formatted, started, stopped, killed, started again."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import socket
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from quick_jvm import QUICK
from servers.process import dies_with_us

from spark_jobs.java import find_java_home

_STOP_S = 30.0
_QUIET = ("-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dlog4j2.disable.jmx=true")
SMALL_JVM = ("-Xmx512m", *QUICK)
"""Starts soon and stays small; a benchmark gives its broker something better."""


def java_command(jars: Path, jvm: Sequence[str], main: str, *arguments: str) -> list[str]:
    """The command that runs a class of these jars."""
    java = find_java_home(os.environ) / "bin" / "java"
    return [str(java), *jvm, *_QUIET, "-cp", str(jars / "*"), main, *arguments]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """What makes a node that one and no other.

    Args:
        node_id: its number in the cluster, from 1.
        directory: for its properties, its log and its data.
        port: where clients reach it, on loopback.
        controller_port: where the other controllers do; of no use to a node that is none.
        voters: all controllers of the cluster, ``1@127.0.0.1:4711,…``.
        cluster_id: a base64 UUID, of all nodes.
        remote: the directory that stands for the bucket; all nodes share it.
        replication: of the topics that Kafka keeps for itself.
        listeners: other doors for clients, a port by the security protocol that also names the listener.
        settings: properties besides ours, or instead of them.
    """

    node_id: int
    directory: Path
    port: int
    controller_port: int
    voters: str
    cluster_id: str
    remote: Path
    replication: int = 1
    listeners: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_controller(self) -> bool:
        """Whether it votes on the cluster's metadata."""
        return any(voter.startswith(f"{self.node_id}@") for voter in self.voters.split(","))

    def properties(self) -> dict[str, str]:
        """The whole ``server.properties``: small topics of its own, quick to upload and to clean."""
        ports = {"PLAINTEXT": self.port, **self.listeners}
        doors = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
        kinds = ",".join(f"{name}:{name}" for name in ports)
        mine = f",CONTROLLER://127.0.0.1:{self.controller_port}" if self.is_controller else ""
        return {
            "process.roles": "broker,controller" if self.is_controller else "broker",
            "node.id": str(self.node_id),
            "listeners": doors + mine,
            "advertised.listeners": doors,
            "listener.security.protocol.map": f"{kinds},CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.quorum.voters": self.voters,
            "log.dirs": str(self.directory / "data"),
            "auto.create.topics.enable": "false",
            "message.max.bytes": str(16 << 20),
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": str(self.replication),
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": str(self.replication),
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": str(self.replication),
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "log.initial.task.delay.ms": "500",
            "log.retention.check.interval.ms": "500",
            "log.cleaner.backoff.ms": "500",
            "remote.log.storage.system.enable": "true",
            "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
            "remote.log.metadata.manager.class.name": (
                "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"
            ),
            "remote.log.metadata.manager.listener.name": "PLAINTEXT",
            "remote.log.manager.task.interval.ms": "500",
            "rsm.config.dir": str(self.remote),
            "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
            "rlmm.config.remote.log.metadata.topic.replication.factor": str(self.replication),
            "rlmm.config.remote.log.metadata.initialization.retry.interval.ms": "300",
        } | dict(self.settings)


class Node:
    """A process that may come and go; its data stays.

    Args:
        config: of the node.
        jars: as ``fetch_jars`` gives them.
        jvm: options of its Java.
    """

    def __init__(self, config: NodeConfig, jars: Path, jvm: Sequence[str] = SMALL_JVM) -> None:
        self.config = config
        self.log = config.directory / "kafka.log"
        self._jars, self._jvm = jars, jvm
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process, if it runs: for what a benchmark counts."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def format(self) -> None:
        """Write its properties and make its data directory that of the cluster.

        Raises:
            RuntimeError: Kafka does not like the properties; with what it says.
        """
        self._write_properties()
        arguments = ("format", "-t", self.config.cluster_id, "-c", str(self._properties))
        command = java_command(self._jars, SMALL_JVM, "kafka.tools.StorageTool", *arguments)
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise RuntimeError(f"node {self.config.node_id} cannot be formatted:\n{done.stdout}{done.stderr}")

    def format_like(self, other: Node) -> None:
        """Do as ``format`` does, from what it made of another node; that takes no Java."""
        self._write_properties()
        shutil.copytree(other.config.directory / "data", self.config.directory / "data")
        told = self.config.directory / "data" / "meta.properties"
        lines = dict(line.split("=", 1) for line in told.read_text().splitlines() if "=" in line)
        fresh = base64.urlsafe_b64encode(b"\1" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
        lines |= {"node.id": str(self.config.node_id), "directory.id": fresh}
        told.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))

    def start(self) -> None:
        """Let it begin to start; the cluster knows when it is ready. Call it from the main thread."""
        if self.pid is not None:
            raise RuntimeError(f"node {self.config.node_id} runs already")
        command = java_command(self._jars, self._jvm, "kafka.Kafka", str(self._properties))
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=self.config.directory,
                preexec_fn=dies_with_us,
            )

    def stop(self) -> None:
        """Let it end as an operator would, its leaderships moved; killed if it takes too long."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """End it without a word, as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def freeze(self) -> None:
        """Stop it in the middle of what it does: it takes connections and says nothing."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on as if no time had passed."""
        self._signal(signal.SIGCONT)

    def listens(self) -> bool:
        """Whether it takes connections of clients."""
        try:
            socket.create_connection(("127.0.0.1", self.config.port), 1.0).close()
        except OSError:
            return False
        return True

    def tail(self) -> str:
        """The end of what it printed."""
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""

    def _signal(self, number: signal.Signals) -> None:
        if self.pid is None:
            raise RuntimeError(f"node {self.config.node_id} does not run")
        os.kill(self.pid, number)

    def _write_properties(self) -> None:
        self.config.directory.mkdir(parents=True)
        lines = [f"{name}={value}\n" for name, value in self.config.properties().items()]
        self._properties.write_text("".join(lines))

    @property
    def _properties(self) -> Path:
        return self.config.directory / "server.properties"
