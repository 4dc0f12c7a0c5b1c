"""Records and whole logs made up at random, for tests that must hold for all of them. Needs hypothesis.

``histories`` comes with its own answer: the strategy knows the fate of every transaction, so what a consumer
must see is worked out without any index.
"""

from __future__ import annotations

from hypothesis import strategies as st

from segreader.format.batch import Headers, Record
from segreader.format.compression import Codec
from segreader.testing.builder import SegmentBuilder
from segreader.testing.records import ProducerRecord
from segreader.values import dataclass

_MAX_TIMESTAMP_MS = 253_402_300_799_999  # the end of the year 9999
_PLAIN, _IDEMPOTENT = -1, 1000


def payloads(max_size: int = 64) -> st.SearchStrategy[bytes | None]:
    """Keys and values: null, empty, short, and now and then one whose length takes three bytes."""
    large = st.integers(1 << 13, 1 << 14).map(lambda size: b"x" * size)
    return st.one_of(st.none(), st.just(b""), st.binary(max_size=max_size), st.binary(max_size=max_size), large)


def headers() -> st.SearchStrategy[Headers]:
    """Headers with repeated, empty and non-ASCII names, and null and empty values."""
    name = st.one_of(st.sampled_from(["", "h", "trace"]), st.text(max_size=8))
    value = st.one_of(st.none(), st.binary(max_size=16))
    return st.lists(st.tuples(name, value), max_size=4).map(tuple)


def timestamps() -> st.SearchStrategy[int]:
    """Times in ms: none (-1), 0, before 1970, and up to the year 9999; in no order."""
    return st.one_of(st.just(-1), st.integers(-1 << 40, 1 << 42), st.integers(0, _MAX_TIMESTAMP_MS))


def producer_records(max_size: int = 64) -> st.SearchStrategy[ProducerRecord]:
    """Records without an offset; some leave their time to the builder."""
    return st.builds(
        ProducerRecord,
        value=payloads(max_size),
        key=payloads(max_size),
        headers=headers(),
        timestamp_ms=st.one_of(st.none(), timestamps()),
    )


@dataclass(frozen=True, slots=True)
class History:
    """A log and what is true of it.

    Args:
        segments: in offset order.
        uncommitted: what a ``read_uncommitted`` consumer sees.
        committed: what a ``read_committed`` consumer sees.
        last_stable_offset: first offset of the earliest transaction still open, or the end of the log.
    """

    segments: tuple[SegmentBuilder, ...]
    uncommitted: tuple[Record, ...]
    committed: tuple[Record, ...]
    last_stable_offset: int


@dataclass(slots=True)
class _Transaction:
    first_offset: int
    is_aborted: bool = False


class _Log:
    """A log under construction, with the transaction of each record beside it."""

    def __init__(self, base_offset: int, transaction_version: int) -> None:
        first = SegmentBuilder(base_offset, index_interval_bytes=200, transaction_version=transaction_version)
        self.segments = [first]
        self.open: dict[int, _Transaction] = {}
        self.seen: list[tuple[Record, _Transaction | None]] = []

    @property
    def last(self) -> SegmentBuilder:
        return self.segments[-1]

    def data(self, producer_id: int, records: list[ProducerRecord], codec: Codec, transactional: bool) -> None:
        transaction = self._transaction(producer_id) if transactional else None
        known = len(self.last.records)
        self.last.batch(records, codec=codec, producer_id=producer_id, transactional=transactional)
        self.seen += [(record, transaction) for record in self.last.records[known:]]

    def emptied(self, producer_id: int, offsets: int, transactional: bool) -> None:
        if transactional:
            self._transaction(producer_id)
        self.last.empty_batch(offsets, producer_id=producer_id, transactional=transactional)

    def marker(self, producer_id: int, abort: bool) -> None:
        if transaction := self.open.pop(producer_id, None):
            transaction.is_aborted = abort
        self.last.marker(producer_id, abort=abort)

    def history(self) -> History:
        stable = min((t.first_offset for t in self.open.values()), default=self.last.next_offset)
        committed = tuple(
            record
            for record, transaction in self.seen
            if record.offset < stable and not (transaction and transaction.is_aborted)
        )
        return History(tuple(self.segments), tuple(record for record, _ in self.seen), committed, stable)

    def _transaction(self, producer_id: int) -> _Transaction:
        return self.open.setdefault(producer_id, _Transaction(self.last.next_offset))


@st.composite
def histories(draw: st.DrawFn, *, max_steps: int = 24, max_base_offset: int = 1 << 40) -> History:
    """A log of one or more segments and its truth.

    Producers of every kind, interleaved; commits, aborts, stray markers and open transactions; gaps, emptied
    batches, new leaders, all codecs.
    """
    log = _Log(draw(st.one_of(st.just(0), st.integers(0, max_base_offset))), draw(st.sampled_from([1, 2])))
    small = producer_records(max_size=12)
    for _ in range(draw(st.integers(0, max_steps))):
        step = draw(
            st.sampled_from(["data", "data", "data", "data", "marker", "marker", "roll", "empty", "skip", "epoch"])
        )
        producer_id = draw(st.sampled_from([1, 2, 3, _IDEMPOTENT, _PLAIN]))
        transactional = 0 <= producer_id < _IDEMPOTENT
        if step == "data":
            records = draw(st.lists(small, min_size=1, max_size=4))
            log.data(producer_id, records, draw(st.sampled_from(Codec)), transactional)
        elif step == "marker" and transactional:
            log.marker(producer_id, draw(st.booleans()))
        elif step == "roll":
            log.segments.append(log.last.roll())
        elif step == "empty":
            log.emptied(producer_id, draw(st.integers(1, 5)), transactional)
        elif step == "skip":
            log.last.skip(draw(st.integers(1, 100)))
        elif step == "epoch":
            log.last.new_leader(log.last.leader_epoch + draw(st.integers(1, 3)))
    return log.history()
