"""A signature, an extra header and a password are in no error, traceback, log line, counter or text of a store."""

from __future__ import annotations

import io
import logging
import pickle
import traceback
from collections.abc import Iterator

import pytest
from fault_server import SCENARIOS, FaultServer
from fault_urls import CANARY, open_store, read

from segreader.errors import StorageError
from segreader.storage.http.settings import HttpSettings

SLOW = {
    "hintsforever",
    "dripheads",
    "stallheads",
    "stalls",
    "dripchunks",
    "driperrors",
    "stallmid",
    "stallhead",
    "driphead",
    "continues",
    "trailers",
    "dripbehind",
    "finmidforever",
}
ARGUMENTS = {
    "resetevery": "10",
    "retryafters": "0",
    "status": "500x99",
    "redirect": "host",
    "gone": "0",
    "retryafter": "0",
    "late": "99",
    "throttle": "0",
    "chunked": "short",
    "transfer": "unknown",
    "transferbroken": "repeated",
    "transferlater": "gzipchunked",
    "head": "nocolon",
    "length": "word",
    "interim": "103x2",
}


@pytest.fixture(scope="module")
def server() -> Iterator[FaultServer]:
    with FaultServer() as server:
        server.signature = "none-is-good"
        yield server


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """Everything that is logged at DEBUG, as a program sees it that logs all."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield stream
    root.setLevel(level)
    root.removeHandler(handler)


@pytest.mark.parametrize("scenario", sorted(SCENARIOS.keys() - SLOW))
def test_nothing_shows_the_signature_whatever_goes_wrong(
    server: FaultServer, logged: io.StringIO, scenario: str
) -> None:
    argument = ARGUMENTS.get(scenario)
    name = f"{scenario}-{argument}/leak-{scenario}" if argument else f"{scenario}/leak-{scenario}"
    settings = {"tries": 2, "in_flight": 2, "extra_headers": {"X-Key": f"{CANARY}-header"}, "hedge_share": 0.05}
    settings["idle_timeout_s"] = 0.5
    texts = []
    with open_store(server, **settings) as store:  # type: ignore[arg-type]
        try:
            read(store, name)
        except StorageError as error:
            told = traceback.TracebackException.from_exception(error, capture_locals=True)
            inner = [f for f in told.stack if "/segreader/" in f.filename]
            texts += [str(error), repr(error), "".join(traceback.format_exception(error)), str(error.__dict__)]
            texts += ["".join(map(str, (frame.locals or {}).items())) for frame in inner]
            texts.append(str(pickle.loads(pickle.dumps(error))))
            assert error.__context__ is None
            assert error.__cause__ is None
        texts += [str(store.metrics.as_dict()), str(store.metrics.log), store.url(name), repr(store)]
    texts.append(logged.getvalue())

    assert [text for text in texts if CANARY in text] == []
    assert server.log(f"leak-{scenario}")[0].query.endswith(CANARY)


def test_what_urllib3_logs_keeps_the_path_and_loses_the_query(server: FaultServer, logged: io.StringIO) -> None:
    with open_store(server) as store:
        read(store, "clean/logged", 0, 10)

    assert "/bkt/clean/logged?<redacted>" in logged.getvalue()


def test_settings_do_not_show_their_headers() -> None:
    assert CANARY not in repr(HttpSettings(extra_headers={"Authorization": CANARY}))
