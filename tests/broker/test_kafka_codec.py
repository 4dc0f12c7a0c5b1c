"""kafka-python behind its adapter: what it logs, who imports it, and a machine without it."""

from __future__ import annotations

import ast
import logging
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from frames import body

import segreader
from segreader.broker import api as wire
from segreader.broker.messages import FetchPartition, FetchRequest, OffsetWanted
from segreader.errors import OptionError
from segreader.isolation import IsolationLevel

PACKAGE = Path(segreader.__file__).parent
SECRET = "canary-5ecret"
NAMES: dict[str, Any] = {"correlation_id": 1, "client_id": "segreader"}


def run(program: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, for what is imported once."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        cwd=PACKAGE.parent,
        check=False,
    )


def test_the_password_is_in_no_log_though_everything_is_at_debug() -> None:
    done = run(
        f"""
        import logging, sys
        logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
        from segreader.broker import api as wire
        frame = wire.encode_sasl_authenticate(2, b"\\0alice\\0{SECRET}", correlation_id=1, client_id="segreader")
        assert b"{SECRET}" in frame
        wire.decode_sasl_authenticate(2, b"\\0\\0\\0\\1\\0" + b"\\0\\0\\0" + b"\\x0e{SECRET}" + bytes(9))
        logging.getLogger("kafka.protocol.parser").debug("Sending request {SECRET}")
        logging.getLogger("kafka.net.connection").debug("Request {SECRET}")
        logging.getLogger("kafka.net").info("but this is shown")
        """
    )

    assert done.returncode == 0, done.stderr
    assert "but this is shown" in done.stdout
    assert SECRET not in done.stdout + done.stderr


def test_a_logger_that_was_quieter_before_stays_so() -> None:
    done = run(
        """
        import logging
        logging.getLogger("kafka.net").setLevel(logging.ERROR)
        from segreader.broker import api as wire
        print(logging.getLogger("kafka.protocol").level)
        wire.encode_sasl_authenticate(2, b"", correlation_id=1, client_id="segreader")
        print(logging.getLogger("kafka.net").level, logging.getLogger("kafka.protocol").level)
        """
    )

    assert done.stdout.split() == [str(logging.NOTSET), str(logging.ERROR), str(logging.INFO)]


def test_a_step_of_an_authentication_is_not_shown() -> None:
    answer = wire.decode_sasl_authenticate(1, b"\0\0\0\1" + b"\0\0" + b"\xff\xff" + b"\0\0\0\2hi" + bytes(8))

    assert (answer.data, answer.error_message, answer.session_lifetime_ms) == (b"hi", None, 0)
    assert "hi" not in repr(answer)


def test_without_kafka_python_it_is_said_what_to_install() -> None:
    done = run(
        """
        import sys
        sys.modules["kafka"] = None
        import segreader, segreader.broker.fetch_answer, segreader.broker.location_codec
        try:
            import segreader.broker.api
        except segreader.OptionError as missing:
            print(missing)
        """
    )

    assert done.returncode == 0, done.stderr
    assert "kafka-python, which is not installed. pip install 'kafka-python>=3.0.12,<3.1'" in done.stdout


def test_one_module_alone_knows_kafka_python() -> None:
    importers = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            if any(name.split(".")[0] == "kafka" for name in names):
                importers.add(path.relative_to(PACKAGE).as_posix())

    assert importers == {"broker/kafka_codec.py"}


def test_a_client_id_longer_than_the_librarys_buffer_is_written_whole() -> None:
    names: dict[str, Any] = {"correlation_id": 1, "client_id": "x" * 32_767}

    for version in (1, 11):
        frame = wire.encode_list_offsets(
            version, [OffsetWanted("t" * 200, 0, -1)] * 2_000, IsolationLevel.READ_COMMITTED, **names
        )
        assert frame[14 : 14 + 32_767] == b"x" * 32_767
        assert len(body(frame)) > 32_767 + 2_000


@pytest.mark.parametrize("client_id", ["x" * 32_768, "\udcff"])
def test_what_no_field_can_hold_is_an_option_error(client_id: str) -> None:
    with pytest.raises(OptionError, match="cannot be asked by Metadata 12"):
        wire.encode_metadata(12, ["t"], correlation_id=1, client_id=client_id)


def test_an_offset_beyond_64_bits_is_an_option_error() -> None:
    request = FetchRequest((FetchPartition("t", "P2wqEH1LTg6belocji9NYA", 0, 1 << 63),))

    with pytest.raises(OptionError, match="cannot be asked by Fetch 17"):
        wire.encode_fetch(17, request, **NAMES)


def test_a_fetch_by_id_without_an_id_is_refused_before_it_is_sent() -> None:
    request = FetchRequest((FetchPartition("orders", None, 0, 0),))

    assert b"orders" in wire.encode_fetch(12, request, **NAMES)
    with pytest.raises(ValueError, match="Fetch 13 asks by topic id, and that of orders is not given"):
        wire.encode_fetch(13, request, **NAMES)


def test_topics_are_asked_for_by_id_only_where_that_is_known() -> None:
    with pytest.raises(ValueError, match="Metadata 11 does not ask by topic id"):
        wire.encode_metadata(11, topic_ids=["P2wqEH1LTg6belocji9NYA"], **NAMES)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("0.1.0", b"0.1.0"),
        ("0.2.0.dev1+g12ab", b"0.2.0.dev1-g12ab"),
        ("-.x.-", b"x"),
        ("", b"unknown"),
        ("é", b"unknown"),
    ],
)
def test_a_version_is_told_in_characters_that_a_broker_does_not_refuse(given: str, told: bytes) -> None:
    frame = wire.encode_api_versions(3, "segreader", given, **NAMES)

    assert frame.endswith(bytes([len(told) + 1]) + told + b"\0")
