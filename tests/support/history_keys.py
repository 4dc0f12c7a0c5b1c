"""Providers of canary credentials for ``credentials=history_keys:…``: those that work, and those that fail in tasks."""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Mapping

from canaries import CANARIES
from pyspark import TaskContext

_KEYS = {"key": CANARIES["key"], "secret": CANARIES["secret"], "token": CANARIES["token"]}


def keys(location: str) -> Mapping[str, object]:
    """Credentials that work."""
    return dict(_KEYS)


def denied(location: str) -> Mapping[str, object]:
    """Credentials for a server that refuses them, and quotes the request."""
    return _KEYS | {"endpoint_url": os.environ["HISTORY_REFUSING"], "region": "us-east-1"}


def refused(location: str) -> Mapping[str, object]:
    """The same in tasks; elsewhere the server is the right one."""
    return {**denied(location), **({} if _is_task() else {"endpoint_url": os.environ["HISTORY_ENDPOINT"]})}


def fails(location: str) -> Mapping[str, object]:
    """In tasks, an error that tells everything."""
    if _is_task():
        raise RuntimeError(f"cannot get anything with {_KEYS}")
    return dict(_KEYS)


def nonsense(location: str) -> Mapping[str, object]:
    """In tasks, an option that no store can have beside credentials that are right."""
    return _KEYS | ({"anon": f"maybe {CANARIES['password']}"} if _is_task() else {})


def broker_keys(location: str) -> Mapping[str, object]:
    """The password of a client of brokers."""
    assert location.startswith("kafka://")
    return {"sasl.password": CANARIES["password"]}


def broker_refused(location: str) -> Mapping[str, object]:
    """In tasks, one that the broker refuses."""
    return {"sasl.password": CANARIES["password"] + ("!" if _is_task() else "")}


def broker_fails(location: str) -> Mapping[str, object]:
    """In tasks, an error that tells everything."""
    if _is_task():
        raise RuntimeError(f"cannot log in with {CANARIES['password']}")
    return {"sasl.password": CANARIES["password"]}


def crashes(location: str) -> Mapping[str, object]:
    """In tasks, the end of the process in compiled code, with credentials on the stack."""
    given = dict(_KEYS)
    if _is_task():
        faulthandler._sigabrt()  # type: ignore[attr-defined]
    return given


def _is_task() -> bool:
    return TaskContext.get() is not None
