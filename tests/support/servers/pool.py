"""The servers that a test session has started, each at its first use and once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from servers.azurite import azurite
from servers.moto import moto
from servers.nginx import nginx
from servers.process import NotAvailableError
from servers.rclone import rclone
from servers.swift import swift


def _kafka(directory: Path) -> contextlib.AbstractContextManager[Any]:
    from kafka_kit.cluster import cluster

    return cluster(directory)


STARTERS: dict[str, Callable[[Path], contextlib.AbstractContextManager[Any]]] = {
    "swift": swift,
    "moto": moto,
    "rclone": rclone,
    "nginx": nginx,
    "azurite": azurite,
}
"""Stores, each behind a server of its own."""


def _kafka_racks(directory: Path) -> contextlib.AbstractContextManager[Any]:
    from kafka_kit.racks import racks

    return racks(directory)


def _kafka_java(directory: Path) -> contextlib.AbstractContextManager[Any]:
    from kafka_kit.java import java_reader

    return java_reader(directory)


BROKER = {"kafka": _kafka, "kafka-racks": _kafka_racks, "kafka-java": _kafka_java}
"""A broker, three of them in racks, and the Java consumer; what is required or not is ``kafka``."""


class ServerPool:
    """Starts servers by name; all of them end with the block.

    Args:
        directory: where they keep their files.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stack = contextlib.ExitStack()
        self._running: dict[str, Any] = {}
        self._missing: dict[str, str] = {}

    def __enter__(self) -> ServerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def get(self, name: str) -> Any:
        """The server of that name; skips the test where it cannot be had on this machine."""
        if name not in self._running and name not in self._missing:
            place = self._directory / name
            place.mkdir()
            try:
                self._running[name] = self._stack.enter_context((STARTERS | BROKER)[name](place))
            except NotAvailableError as error:
                self._missing[name] = error.message
        if name in self._missing:
            skip_or_fail(name.partition("-")[0], self._missing[name])
        return self._running[name]


def skip_or_fail(name: str, reason: str) -> NoReturn:
    """Skip the test for want of a server; fail where ``SEGREADER_REQUIRE_SERVER`` (``azurite,kafka``) names it."""
    if name in os.environ.get("SEGREADER_REQUIRE_SERVER", "").split(","):
        pytest.fail(reason)
    pytest.skip(reason)
