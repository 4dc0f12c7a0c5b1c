"""A scan: what is asked for, turned into a plan and into records. The library's front door."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from segreader.catalog.listing import Wanted
from segreader.errors import FormatError, ObjectChangedError, ObjectNotFoundError, OptionError, SegreaderError
from segreader.format.columns import DEFAULT_MAX_BYTES, DEFAULT_MAX_ROWS, NO_STOP
from segreader.format.compression import DEFAULT_LIMIT
from segreader.isolation import IsolationLevel
from segreader.places import Place, at_places
from segreader.plan.cut import DEFAULT_SPLIT_BYTES
from segreader.plan.partitioner import KeyPartition
from segreader.plan.request import (
    DEFAULT_COLUMNS,
    Bounds,
    Order,
    Policy,
    ReadOptions,
    RecordFilter,
    Request,
    Time,
    pair_of,
    parse_bounds,
    parse_bytes,
    parse_on_gap,
    parse_partitions,
    parse_time_range,
    path_of,
    require_text,
    split_columns,
)
from segreader.plan.split import ReadPlan, join_plans
from segreader.ranges import OffsetRange
from segreader.read.base_scan import BaseScan, Offsets
from segreader.read.metrics import ScanMetrics, Stopwatch, timed
from segreader.read.plan_reader import PlanReader, take_back, without_first
from segreader.read.split_reader import AssumptionError
from segreader.read.tail import last_offsets, ranges_around
from segreader.segment import TopicIdPartition
from segreader.storage.base import FetchedAtOnce, ObjectStore, RememberingStore, range_size_of
from segreader.storage.metrics import metrics_of
from segreader.storage.options import Kind, kind_of
from segreader.stored.assumed import DraftPlan, PlainLogs, plan_plain_logs
from segreader.stored.log import log_at_end
from segreader.stored.planner import PartitionPlanner, plan_each_log
from segreader.stored.segment_ends import ranges_beside
from segreader.stored.source import (
    Catalog,
    LocationSource,
    Source,
    SourceAddress,
    SourceLog,
    UrlSource,
    Wants,
    open_source,
)
from segreader.stored.times import UNREADABLE, note_if_older
from segreader.typed.decoding import Decoding, Side

if TYPE_CHECKING:
    from segreader.live.scan import LiveScan
    from segreader.typed.reader_schema import Schemas, SchemaVersion

_MOST_FETCHED: Final = 64
"""Segments of a partition whose small objects are fetched together, before the plan asks for one after another."""


class Scan(BaseScan):
    """Records of some partitions at a location. Made by ``segreader.scan``; nothing is read before it is asked for."""

    def __init__(
        self,
        source: Source,
        request: Request | None = None,
        options: ReadOptions | None = None,
        **earlier: Any,
    ) -> None:
        if earlier:
            request, options = _of_earlier(options or ReadOptions(), **earlier)
        super().__init__(options or ReadOptions(), ScanMetrics())
        self.location = source.shown
        self._request = request = request or Request()
        self.isolation_level = request.isolation_level
        self.offsets = OffsetRange(request.bounds.start or 0, request.bounds.stop)
        self.times = request.bounds.times
        self._plan: ReadPlan | None = None
        self._draft: DraftPlan | None = None
        self._source = source
        self._places: list[KeyPartition] | None = None
        self._looked: list[ScanMetrics] = []  # what was read to find the last records

    @property
    def store(self) -> ObjectStore:
        """The store that segments are read from."""
        return self._source.store

    @property
    def _asked(self) -> Request:
        return self._request

    @property
    def _shown(self) -> str:
        return self.location

    @property
    def address(self) -> SourceAddress | None:
        """What other processes open to read the same segments; ``None`` where they cannot."""
        return self._source.address if isinstance(self._source, LocationSource) else None

    def plan(self) -> ReadPlan:
        """The plan of the read, from listings, indexes and snapshots; made once.

        Raises:
            CatalogError: the location, or its contents, do not allow the request.
            SegmentGapError: offsets between two segments are in none (``on_gap='fail'``).
            ObjectNotFoundError: the topic or partition does not exist.
        """
        if self._plan is None:
            watch = Stopwatch()
            plans: list[ReadPlan] = []
            logs: list[SourceLog] = []
            for log, planned in plan_each_log(self._logs_to_plan(), self._plan_one, self.store):
                plans.append(planned())
                if self.times is not None:
                    logs.append(log)
            self._plan = self.with_newest(join_plans(self.location, plans), logs)
            self._plan_took = watch.so_far()
        return self._plan

    def prepare(self) -> ReadPlan:
        """The plan by which records are read, as ``plan``; of plain logs in a long list of URLs what their first and
        last bytes show, and all of it once they are read.
        """
        source = self._source
        if self._plan is not None or not isinstance(source, UrlSource):
            return self.plan()
        if self._draft is None:
            asks_for_more = self._request.placed_by_key is not None or self._request.last is not None
            if self.times is not None or self.options.order is not Order.TOTAL or asks_for_more:
                return self.plan()
            watch = Stopwatch()
            assumed: dict[TopicIdPartition, tuple[PlainLogs, bool]] = {}

            def plan_one(log: SourceLog) -> ReadPlan:
                most, level = self.options.max_batch_bytes, self.isolation_level
                plain = None if source.keeps_all else PlainLogs.of(self.store, log, self.offsets, most)
                found = None if plain is None else plan_plain_logs(plain, self.planner, self.location, level)
                if plain is None or found is None:
                    return self._plan_one(log)
                assumed[log.log.partition] = plain, found[1]
                return found[0]

            plans: dict[TopicIdPartition, ReadPlan] = {}
            for log, planned in plan_each_log(self._logs_to_plan(), plan_one, self.store):  # no name outlives an error
                plans[log.log.partition] = planned()
            if not assumed:
                self._plan = join_plans(self.location, plans.values())
            else:
                self._draft = DraftPlan(self.location, plans, assumed, self.planner)
            self._plan_took = watch.so_far()
        return self._draft.plan if self._plan is None and self._draft is not None else self.plan()

    def _plan_one(self, log: SourceLog, on_gap: str | None = None) -> ReadPlan:
        if self._request.last is not None:
            return self._plan_last(log, self._request.last, on_gap)
        store = self.store
        is_whole = self.offsets.stop is None and self.times is None
        if is_whole and range_size_of(store) and len(log.log.segments) <= _MOST_FETCHED:
            is_committed = self.isolation_level is IsolationLevel.READ_COMMITTED
            store = FetchedAtOnce(store, ranges_beside(log.log.segments, is_committed=is_committed))
        planner = self.planner(on_gap, store)
        planner.add(log, self.offsets, self.times)
        return planner.plan(self.location)

    def _plan_last(self, log: SourceLog, count: int, on_gap: str | None) -> ReadPlan:
        """The plan of the last records of a partition. Its end is read to find them, and what is before as needed."""
        store = RememberingStore(self.store)  # each stretch is planned by the same small objects
        stored = log_at_end(store, log, max_batch_bytes=self.options.max_batch_bytes)
        wanted = self.offsets if self.times is None else stored.offsets_between(self.times, self.offsets)
        is_committed, where = self.isolation_level is IsolationLevel.READ_COMMITTED, self.options.where
        hidden = stored.is_end_hidden
        end = min(stored.open_end, NO_STOP) if hidden else stored.stable if is_committed else stored.latest
        stop = end if wanted.stop is None else min(wanted.stop, end)
        first = min(max(wanted.start, stored.earliest), stop)
        looked, damage = ScanMetrics(), list[FormatError]()
        options = replace(self.options, columns=("offset",))

        def read(offsets: OffsetRange) -> Generator[pa.RecordBatch, None, None]:
            planner = self.planner(on_gap, store)
            planner.add(stored, offsets)
            return PlanReader(self.store, options, metrics=looked).read(planner.plan(self.location))

        found = last_offsets(
            read,
            OffsetRange(first, stop),
            count,
            is_filtered=where is not None,
            surely=stored.latest if hidden else None,
            on_damage=damage.append,
        )
        self._looked.append(looked)
        planner = self.planner(on_gap, store)
        planner.add(
            stored,
            OffsetRange(found[0] if found else stop, wanted.stop),
            only=ranges_around(found) if found and where is not None else None,
        )
        plan = planner.plan(self.location)
        return _damaged_behind(plan, damage[0], self.options.on_corrupt) if damage else plan

    def plan_each(self) -> tuple[ReadPlan, dict[TopicIdPartition, SegreaderError]]:
        """A plan of the partitions that can be planned, and the errors of the others.

        Gaps are in the plan, whatever ``on_gap`` is. A later ``plan()`` gives the same plan.

        Raises:
            as ``plan``, for the location; and the first partition's error, if none can be planned.
        """
        plans: list[ReadPlan] = []
        errors: dict[TopicIdPartition, SegreaderError] = {}
        logs: list[SourceLog] = []
        for log, planned in plan_each_log(
            self._logs_to_plan(), partial(self._plan_one, on_gap=Policy.SKIP), self.store
        ):
            logs.append(log)
            try:
                plans.append(planned())
            except UNREADABLE as error:
                errors[log.log.partition] = error
        if errors and not plans:
            raise next(iter(errors.values()))
        self._plan = self.with_newest(join_plans(self.location, plans), logs)
        return self._plan, errors

    def with_newest(self, plan: ReadPlan, logs: Iterable[SourceLog]) -> ReadPlan:
        """The plan with notes on the whole scan: which partitions a key chose; and, if all records are older than
        ``since``, the newest timestamp."""
        plan = self.with_notes(plan)
        is_empty = all(one.offsets.stop is not None and one.offsets.start >= one.offsets.stop for one in plan.splits)
        if self.times is None or plan.gaps or not is_empty:
            return plan
        note = note_if_older(self.store, [log.segments for log in logs], self.times, self.offsets)
        return plan if note is None else replace(plan, notes=(*plan.notes, note))

    @property
    def last(self) -> int | None:
        """How many records of each partition are read at most, from its end; ``None``: all of them."""
        return self._request.last

    @property
    def looked_at(self) -> int:
        """Records that the last read looked at, including those that ``last`` made the plan read."""
        return max(self.metrics.records, sum(one.records for one in self._looked))

    def planner(self, on_gap: str | None = None, store: ObjectStore | None = None) -> PartitionPlanner:
        """A planner that knows how this scan is to be read, for those who choose of its partitions and offsets.

        Args:
            on_gap: in place of the scan's own; as is ``store``.
        """
        options = self.options if on_gap is None else replace(self.options, on_gap=Policy.parse("on_gap", on_gap))
        return PartitionPlanner(store or self.store, options, isolation_level=self.isolation_level)

    def logs(self, wants: Wants | None = None) -> Iterator[SourceLog]:
        """The partitions of this scan, listed one after another; those that ``wants`` refuses cost no listing."""
        return self._logs(self._wanted(), wants)

    def _logs_to_plan(self) -> Iterator[SourceLog]:
        """The same; for a range of offsets, segments may be known by their names alone."""
        by_name = self.times is None and self.offsets != OffsetRange() and self._request.last is None
        return self._logs(replace(self._wanted(), by_name=by_name), None)

    def _logs(self, wanted: Wanted, wants: Wants | None) -> Iterator[SourceLog]:
        if self._request.placed_by_key is None:
            return self._source.logs(wanted, wants)
        chosen = {TopicIdPartition(one.topic, one.partition, one.topic_id) for one in self.key_partitions()}
        return self._source.logs(wanted, lambda one: one in chosen and (wants is None or wants(one)))

    def key_partitions(self) -> Sequence[KeyPartition]:
        """The partition of each topic that is read for ``with_key``; none where all are, or the request names some.

        Costs a listing of the partitions, once, and none of their segments.
        """
        key = self._request.placed_by_key
        if key is None:
            return ()
        if self._places is None:
            seen: dict[tuple[str, str | None], set[int]] = {}

            def note(partition: TopicIdPartition) -> bool:
                seen.setdefault((partition.topic, partition.topic_id), set()).add(partition.partition)
                return False

            for log in self._source.logs(self._wanted(), note):  # a list of URLs gives what it has
                note(log.log.partition)
            self._places = [KeyPartition.of(*topic, key, some) for topic, some in seen.items()]
        return self._places

    def with_notes(self, plan: ReadPlan) -> ReadPlan:
        """The plan, with a note on each partition that was chosen by ``with_key``."""
        notes = tuple(one.text for one in self.key_partitions())
        return replace(plan, notes=(*notes, *plan.notes)) if notes else plan

    def _wanted(self) -> Wanted:
        return Wanted(self._request.topic, self._request.topic_id, self._request.partitions)

    def _batches(self, options: ReadOptions) -> Iterator[pa.RecordBatch]:
        plan = self.prepare()
        reader = PlanReader(self.store, options)
        self.metrics = reader.metrics
        self.metrics.notes.extend(plan.notes)
        for looked in self._looked:
            self.metrics.requests += looked.requests
            self.metrics.bytes_read += looked.bytes_read
            self.metrics.body_bytes += looked.body_bytes
        stored = metrics_of(self.store)
        batches = reader.read(plan) if self._plan is not None else self._read_draft(options, reader.metrics)
        yield from timed(batches, reader.metrics, stored, Stopwatch(self._plan_took))

    def _read_draft(self, options: ReadOptions, metrics: ScanMetrics) -> Generator[pa.RecordBatch, None, None]:
        """The records by a plan that reading proves, or makes anew."""
        draft = self._draft
        assert draft is not None
        strict = replace(options, on_corrupt=Policy.FAIL, on_missing=Policy.FAIL)
        left = draft.plan
        rows = 0
        try:
            while True:
                reader = PlanReader(self.store, strict, metrics=metrics, assumed=draft.assumed)
                try:
                    with closing(reader.read(left)) as batches:
                        for batch in batches:
                            rows += batch.num_rows
                            yield batch
                            del batch  # its buffers are free while the next one is waited for
                    self._plan = draft.plan
                    return
                except AssumptionError as error:
                    if error.position is None or error.base_offset is None:
                        break
                    if (found := draft.replayed(error.split, error.position, error.base_offset)) is None:
                        break
                    draft, left = found
                    self._draft = draft
        except (FormatError, ObjectNotFoundError, ObjectChangedError):
            pass  # the whole plan says what becomes of it
        self._draft = None
        plan = self.plan()
        take_back(metrics, replace(metrics))
        metrics.notes += [note for note in plan.notes if note not in metrics.notes]
        reader = PlanReader(self.store, options, metrics=metrics)
        yield from without_first(rows, reader.read(plan))

    def close(self) -> None:
        """Give back connections and threads of the store; without this they go with the process."""
        self.store.close()


def parse_offsets(offsets: Offsets) -> OffsetRange:
    """An offset range from ``A:B`` (either may be left out; ``B`` is exclusive), a pair, or a range.

    Raises:
        OptionError: it is none of these.
    """
    if offsets is None:
        return OffsetRange()
    start: int | None
    stop: int | None
    try:
        if isinstance(offsets, str):
            start_text, colon, stop_text = offsets.partition(":")
            if not colon:
                raise ValueError(offsets)
            start, stop = int(start_text or 0), int(stop_text) if stop_text else None
        else:
            start, stop = pair_of(offsets)
        return OffsetRange(start or 0, stop)
    except (ValueError, TypeError, IndexError) as error:
        raise OptionError(
            "not a range of offsets", found=repr(offsets), expected="A:B with 0 <= A <= B; B is exclusive"
        ) from error


def _of_earlier(
    options: ReadOptions,
    *,
    topic: str | None = None,
    topic_id: str | None = None,
    partitions: Collection[int] | None = None,
    offsets: Offsets = None,
    since: Time = None,
    until: Time = None,
    isolation_level: str | IsolationLevel = IsolationLevel.READ_COMMITTED,
    split_bytes: int | None = None,
    on_gap: str | None = None,
) -> tuple[Request, ReadOptions]:
    """The settings that ``Scan`` took one by one in the version before, as the values that it takes now."""
    warnings.warn("Scan takes a Request and ReadOptions; segreader.scan makes them", DeprecationWarning, stacklevel=3)
    some = parse_offsets(offsets)
    request = Request(
        topic=topic,
        topic_id=topic_id,
        partitions=parse_partitions(partitions),
        bounds=Bounds(some.start, some.stop, times=parse_time_range(since, until)),
        isolation_level=parse_isolation_level(isolation_level),
    )
    if split_bytes is not None:
        options = replace(options, split_bytes=split_bytes)
    if on_gap is not None:
        options = replace(options, on_gap=parse_on_gap(on_gap))
    return request, options


def parse_isolation_level(value: str | IsolationLevel) -> IsolationLevel:
    """An isolation level by Kafka's name.

    Raises:
        OptionError: it is none.
    """
    try:
        return IsolationLevel(value)
    except ValueError as error:
        expected = " or ".join(level.value for level in IsolationLevel)
        raise OptionError("unknown isolation level", found=repr(value), expected=expected) from error


def decoded_columns(
    columns: Collection[str],
    *,
    topic: str | None,
    key: Schemas | Decoding | None,
    value: Schemas | Decoding | None,
    schema_version: SchemaVersion = None,
    on_undecodable: str | None = None,
) -> dict[str, Any]:
    """The fields of ``ReadOptions`` that say which columns are read and how keys and values are decoded.

    Args:
        columns: as of ``scan``, fields of keys and values among them; the others as there.
        key, value: or what was planned before: it is kept but for what is given here.

    Raises:
        as ``scan``, for schemas.
    """
    names, paths = split_columns(columns)
    made: dict[str, Any] = {}
    for side, given in ((Side.KEY, key), (Side.VALUE, value)):
        if given is None:
            if paths.get(side, ("",)) != ("",):
                names = (*names, f"{side}.{next(filter(None, paths[side]))}")  # refused, with what it needs
            continue
        from segreader.typed.reader_schema import plan_decoding

        made[side.value] = decoding = plan_decoding(
            given,
            side,
            topic,
            version=schema_version,
            on_undecodable=on_undecodable,
            paths=paths.get(side, ("",)),
        )
        if side.value in names:
            at = names.index(side.value) + 1
            names = (*names[:at], *(one for one in decoding.columns if one not in names), *names[at:])
    if not made and (schema_version is not None or on_undecodable not in (None, "fail")):
        raise OptionError(
            "schema_version and on_undecodable are of typed keys and values", hint="Give schemas: value=… or key=…"
        )
    return {"columns": names, **made}


def _with_schemas(place: Place, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of ``scan`` with the schemas that a place has for the topic."""
    topic, known = given.get("topic"), place.schemas or place.schema_registry
    if known is None or topic is None or given.get("key") is not None or given.get("value") is not None:
        return given
    from segreader.typed.reader_schema import learn_subjects

    return given | learn_subjects(known, topic)


takes_places = partial(at_places, also=_with_schemas)
"""A decorator: a function with the arguments of ``scan`` takes a place by its name as its location."""


@takes_places
def scan(
    location: str | os.PathLike[str] | None = None,
    *,
    urls: Sequence[str] | None = None,
    renew: Callable[[str], str] | None = None,
    storage_options: Mapping[str, object] | None = None,
    topic: str | None = None,
    topic_id: str | None = None,
    partitions: Collection[int] | int | None = None,
    offsets: Offsets = None,
    since: Time = None,
    until: Time = None,
    isolation_level: str | IsolationLevel = IsolationLevel.READ_COMMITTED,
    with_key: bytes | str | None = None,
    all_partitions: bool = False,
    grep: bytes | str | None = None,
    last: int | None = None,
    columns: Collection[str] = DEFAULT_COLUMNS,
    key: Schemas | None = None,
    value: Schemas | None = None,
    schema_version: SchemaVersion = None,
    on_undecodable: str = "fail",
    split_bytes: int = DEFAULT_SPLIT_BYTES,
    batch_rows: int = DEFAULT_MAX_ROWS,
    batch_bytes: int = DEFAULT_MAX_BYTES,
    check_crcs: bool = True,
    on_corrupt: str = "fail",
    on_gap: str = "fail",
    on_missing: str = "fail",
    layout: str | None = None,
    rsm_config: str | os.PathLike[str] | None = None,
    metadata: str | os.PathLike[str] | None = None,
    segments_from: str | None = None,
    log_directory: str | os.PathLike[str] | None = None,
    leader_epochs: str | os.PathLike[str] | None = None,
    max_batch_bytes: int = DEFAULT_LIMIT,
    kernel: str | None = None,
    threads: int | None = None,
    read_ahead_bytes: int | None = None,
    order: str = "total",
    bootstrap_servers: str | None = None,
    broker_options: Mapping[str, object] | None = None,
    group: str | None = None,
    prefer: str = "broker",
    locations: bool = True,
) -> Scan | LiveScan:
    """A scan of the records at a location, or of a live topic; it reads when you ask for records.

    Args:
        location: a place by its name, ``prod``, ``prod:orders`` or ``prod:orders/3``: docs/how-to/places.md; or
            ``kafka://host:port[,host:port]``, a cluster; or a directory, or a prefix in a bucket (``s3://``,
            ``abfss://``, ``gs://``, any fsspec URL), in any of the layouts of
            ``docs/reference/layouts``; or one partition's directory; or the signed URL of one segment.
        urls: in place of a location: signed URLs of segments and their indexes, in any order.
        renew: called with a signed URL that has expired, returns another one for the same object.
        storage_options: credentials, endpoint and the like, under the names that pandas and Polars take; see
            ``docs/reference/options.md``.
        topic: its name; every topic by default.
        topic_id: which topic of that name, if it was deleted and created again: its id, or ``newest``. Without it a
            topic that is named must have one id; if none is named, each id is a topic of its own.
        partitions: which; all by default.
        offsets: ``"A:B"``, ``(A, B)`` or an ``OffsetRange``; ``B`` is exclusive, and either may be left out.
        since, until: only from the first offset whose record is not older than ``since``, and below the first whose
            record is not older than ``until``: a ``datetime`` with a time zone, ms since 1970 UTC, or text such as
            ``2026-11-01T00:00Z`` and ``-1h``. As with ``startingTimestamp`` and ``endingTimestamp`` of Spark's kafka
            source, records between the two offsets may be outside the window if timestamps are out of order.
        isolation_level: ``read_committed`` (default) or ``read_uncommitted``.
        with_key: only records with exactly this key, in bytes, text (its UTF-8) or hex (``0x00ff``). Reads only the
            partition of each topic where Kafka's default partitioner (murmur2) puts it, which ``plan().notes`` names,
            or those of ``partitions``. The number of partitions comes from the listing, or from the cluster.
        all_partitions: with ``with_key``: read every partition, for keys that another partitioner placed.
        grep: only records whose key or value contains these bytes, given as ``with_key``. ``looked_at`` counts the
            records that were searched.
        last: only the last so many records of each partition that match the other arguments. The plan finds where they
            begin by reading backwards from the end, and no more than that needs.
        columns: which columns, in this order; see ``docs/architecture.md``. Others are not built. With schemas also
            fields, ``value.customer`` or ``value.items.price``: no others are decoded.
        key, value: the schemas of keys and values, which are then decoded: a source of ``segreader.schemas``, the URL
            of a registry, or the path of a schema or of saved ones. They are learnt here; reading asks for no more.
        schema_version: the version of the topic's subject that gives the columns: its number or ``latest``. By default
            columns are the union of all versions.
        on_undecodable: where a key or value is not what its schema says: ``fail``, ``null`` (it is null, and counted in
            the metrics) or ``keep`` (also, its bytes are in ``value_raw``, and the reason is in ``value_error``).
        split_bytes: target size of a split, in stored bytes.
        batch_rows, batch_bytes: when a record batch is closed, whichever is reached first.
        check_crcs: whether batches must pass their CRC.
        on_corrupt: ``fail`` or ``skip`` damaged batches.
        on_gap: ``fail`` with ``SegmentGapError`` where offsets between two segments are in none, or ``skip`` them: they
            are in ``plan().gaps``, and the rest is read.
        on_missing: ``fail`` or ``skip`` a segment that vanishes between plan and read.
        layout: the layout; by default it is recognised by object names.
        rsm_config: the broker's properties file, for keys and prefix of encrypted segments (``rsm.config.``).
        metadata: a place with ``__remote_log_metadata-<n>`` log directories: which segments are finished.
        segments_from: ``listing``, ``metadata`` or ``both``; with ``metadata`` it is ``both``.
        log_directory: a broker's log directory, or a copy: its segments continue those of the remote tier.
        leader_epochs: a ``leader-epoch-checkpoint`` of the live log, or a place that holds ``<topic>-<partition>``
            directories with one: which history counts after an unclean leader election.
        max_batch_bytes: largest batch to hold, stored or decompressed.
        kernel: ``native`` or ``reference``; by default ``native`` if it was built.
        threads: how many splits are read at a time; records come in the order asked for, with the same errors and
            notes. By default one for each core, and at least 8 for a store on the network, or what
            ``SEGREADER_THREADS`` names.
        read_ahead_bytes: of record batches that wait to be taken, and of ranges that are fetched for them. By
            default 256 MiB, and 64 MiB for local files, or what ``SEGREADER_READ_AHEAD_BYTES`` names.
        order: ``total``: by topic, partition and offset; ``partition``: record batches of each partition by offset,
            those of several partitions as they are ready, so that a slow one does not hold back the others. An error
            comes after all records that the order ``total`` has before it, and perhaps others.
        bootstrap_servers: brokers, ``host:port`` with commas between: then the live topic is read, its remote part from
            the location, the rest from the brokers. ``offsets`` may name ends (``"earliest:latest-stable"``).
        broker_options: settings of a Kafka client by Kafka's names, such as ``security.protocol``.
        group: start at the committed offsets of this consumer group; nothing is committed.
        prefer: ``broker`` or ``store``: which tier to read records from if both have them.
        locations: whether to ask the cluster for locations if no location is given; ``segreader gateway`` returns them.

    Raises:
        OptionError: an argument is unknown. ObjectNotFoundError: the directory is not there.
        SchemaRegistryError: a schema registry cannot be asked.
    """
    sought, contained = parse_bytes("with_key (--key)", with_key), parse_bytes("grep (--grep)", grep)
    if all_partitions and sought is None:
        raise OptionError("all_partitions is about a key", hint="Name it: with_key (--key)")
    options = ReadOptions(
        **decoded_columns(
            columns,
            topic=topic,
            key=key,
            value=value,
            schema_version=schema_version,
            on_undecodable=on_undecodable,
        ),
        split_bytes=split_bytes,
        batch_rows=batch_rows,
        batch_bytes=batch_bytes,
        check_crcs=check_crcs,
        on_corrupt=Policy.parse("on_corrupt", on_corrupt),
        on_gap=parse_on_gap(on_gap, stacklevel=4),
        on_missing=Policy.parse("on_missing", on_missing),
        max_batch_bytes=max_batch_bytes,
        kernel=kernel,
        threads=threads,
        read_ahead_bytes=read_ahead_bytes,
        order=Order.parse(order),
        where=None if sought is None and contained is None else RecordFilter(sought, contained),
    )
    if location not in (None, ""):  # which have errors of their own
        path_of("location", location)
    require_text("layout", layout)
    beside = {
        "rsm_config": rsm_config,
        "metadata": metadata,
        "log_directory": log_directory,
        "leader_epochs": leader_epochs,
    }
    for name, path in beside.items():
        if path is not None:
            path_of(name, path)
    catalog = Catalog(layout=layout, segments_from=segments_from, **beside)
    times, wanted = parse_time_range(since, until), parse_partitions(partitions)
    request = Request(
        topic=topic,
        topic_id=topic_id,
        partitions=wanted,
        isolation_level=parse_isolation_level(isolation_level),
        prefers_store=prefer == "store",
        placed_by_key=sought if wanted is None and not all_partitions else None,
        last=last,
    )
    if renew is not None:
        _require_renewable(renew, location, urls)
    if bootstrap_servers is not None or is_cluster(location):
        from segreader.live.scan import open_live_scan

        if prefer not in ("broker", "store"):
            raise OptionError("unknown prefer", found=prefer, expected="broker or store")
        return open_live_scan(
            location,
            bootstrap_servers,
            replace(request, bounds=parse_bounds(offsets, times, group)),
            options,
            broker_options=broker_options,
            urls=urls,
            storage_options=storage_options,
            catalog=catalog,
            asks_for_locations=locations,
        )
    if broker_options or group is not None or prefer != "broker" or not locations:
        raise OptionError(
            "broker_options, group, prefer and locations are of live topics",
            hint="Name brokers: bootstrap_servers (--bootstrap-servers), or kafka://broker:9092 as the location",
        )
    source = open_source(location, urls=urls, renew=renew, storage_options=storage_options, catalog=catalog)
    some = parse_offsets(offsets)
    return Scan(source, replace(request, bounds=Bounds(some.start, some.stop, times=times)), options)


def _damaged_behind(plan: ReadPlan, damage: FormatError, on_corrupt: Policy) -> ReadPlan:
    """The plan of a partition, with damage behind the records that it has: raised, or noted where it is skipped."""
    if on_corrupt is Policy.SKIP:
        plan = replace(plan, notes=(*plan.notes, str(damage)))
    ends = [one if one.damage is not None else replace(one, damage=damage) for one in plan.ends]
    return replace(plan, ends=tuple(ends))


def _require_renewable(renew: object, location: str | os.PathLike[str] | None, urls: Sequence[str] | None) -> None:
    if not callable(renew):
        raise OptionError(
            "renew must be a function", found=type(renew).__name__, expected="it returns a new URL for an expired one"
        )
    if urls is None and (location is None or kind_of(os.fspath(location)) is not Kind.HTTP):
        raise OptionError("renew needs signed URLs", hint="Give it with urls=[…], or with one URL as the location")


def is_cluster(location: str | os.PathLike[str] | None) -> bool:
    """Whether a location is ``kafka://…``: brokers, not a store."""
    return location is not None and os.fspath(location).lower().startswith("kafka://")
