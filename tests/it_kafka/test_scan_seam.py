"""The seam between the remote tier and the live log: every bound around it, and what each side is asked for."""

from __future__ import annotations

import pytest
from kafka_kit.clients import Received, Sent, producer, send
from kafka_kit.java import JavaReader
from kafka_kit.racks import Racks
from kafka_kit.scanned import scanned

pytestmark = [pytest.mark.exhaustive, pytest.mark.xdist_group("cluster")]

TOPIC = "seam"
BATCH = 7


@pytest.fixture(scope="module")
def seam(racks: Racks) -> int:
    """The first local offset of a topic whose batches of seven lie on both sides of it."""
    racks.cluster.create_topic(TOPIC, replicas=[[3, 1]], segment_bytes=2000)
    with producer(racks.steady, batch_num_messages=BATCH) as made:
        send(made, TOPIC, [Sent(value=b"value-%d" % number, timestamp_ms=1_700_000_000_000) for number in range(210)])
    racks.cluster.upload_closed(TOPIC)
    found = racks.cluster.offsets(TOPIC)[0]
    assert 0 < found.earliest_local < found.latest
    return found.earliest_local


@pytest.fixture(scope="module")
def truth(racks: Racks, java: JavaReader, seam: int) -> list[Received]:
    """All of it."""
    return java.read(racks.bootstrap, TOPIC)


@pytest.mark.parametrize("kind", ["live", "stored"])
@pytest.mark.parametrize("start", range(-BATCH - 1, BATCH + 2, 3))
def test_a_scan_from_and_to_any_offset_around_the_seam(
    racks: Racks, seam: int, truth: list[Received], kind: str, start: int
) -> None:
    location = f"kafka://{racks.bootstrap}" if kind == "live" else racks.cluster.location
    options = {} if kind == "live" else {"bootstrap_servers": racks.bootstrap}
    for stop in (start + 1, BATCH + 2):
        found = scanned(location, TOPIC, offsets=(seam + start, seam + stop), **options)
        assert found == [one for one in truth if seam + start <= one.offset < seam + stop]


def test_a_scan_of_the_location_alone_ends_at_the_seam(racks: Racks, seam: int, truth: list[Received]) -> None:
    assert scanned(racks.cluster.location, TOPIC) == truth[:seam]
