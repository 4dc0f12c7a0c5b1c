"""What a loader loads, as one value that travels to every machine of a host; it holds no secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from segreader.catalog.layouts.registry import choose_layouts
from segreader.errors import OptionError
from segreader.format.columns import DEFAULT_MAX_BYTES, DEFAULT_MAX_ROWS
from segreader.format.compression import DEFAULT_LIMIT
from segreader.format.kernel import load_kernel
from segreader.isolation import IsolationLevel
from segreader.loader.saved import VERSION, SavedFields, write_saved
from segreader.plan.cut import DEFAULT_SPLIT_BYTES
from segreader.plan.request import (
    DEFAULT_COLUMNS,
    ReadOptions,
    Time,
    TimeRange,
    parse_on_gap,
    parse_partitions,
    parse_time_range,
    path_of,
    require_text,
)
from segreader.ranges import OffsetRange
from segreader.read.arrow import schema_of
from segreader.read.base_scan import Offsets
from segreader.scans import decoded_columns, is_cluster, parse_isolation_level, parse_offsets
from segreader.stored.source import Catalog, LocationSource, UrlSource, open_source, refuse_credentials
from segreader.typed.decoding import Decoding, save_decodings, saved_decodings
from segreader.values import dataclass

if TYPE_CHECKING:
    from segreader.typed.reader_schema import Schemas, SchemaVersion

_KIND: Final = "query"
_TYPED: Final = 2
"""The version of a saved query with schemas: one that passed over them would give columns of other types."""


@dataclass(frozen=True, kw_only=True)
class LoadQuery:
    """What is loaded, and how. The arguments are those of ``segreader.scan``; they are checked when it is made.

    Pass credentials as ``storage_options`` to the objects that open the location, on each machine.

    Args:
        location: a directory, or a prefix in a bucket; without a credential in it.
        topic, topic_id, partitions, offsets: which records. ``offsets`` without an end go on with what is uploaded.
            With ``newest`` as the id a load ends with ``RecreatedTopicError`` once the name has a newer one.
        since, until: times; those before now are fixed here, and not on the machine that reads.
        isolation_level, columns, split_bytes, batch_rows, batch_bytes, check_crcs, on_corrupt, on_gap, on_missing,
        layout, rsm_config, metadata, segments_from, log_directory, leader_epochs, max_batch_bytes, kernel: as there.
        threads, read_ahead_bytes: of a ``ReaderPool``, unless it is given others.
        key, value: as there. Schemas are learnt here, once. From then on the query holds how each side is decoded: it
            is saved with the query, and no reader, restore or other machine asks for a schema again.
        schema_version, on_undecodable: as there; they become part of ``key`` and ``value``, and are ``None`` then.

    Raises:
        OptionError: a value is unknown, or the location holds a credential or names brokers.
        SchemaRegistryError: a schema registry cannot be asked.
    """

    location: str
    topic: str | None = None
    topic_id: str | None = None
    partitions: tuple[int, ...] | None = None
    offsets: Offsets = None
    since: Time = None
    until: Time = None
    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED
    columns: tuple[str, ...] = DEFAULT_COLUMNS
    key: Schemas | Decoding | None = None
    value: Schemas | Decoding | None = None
    schema_version: SchemaVersion = None
    on_undecodable: str | None = None
    split_bytes: int = DEFAULT_SPLIT_BYTES
    batch_rows: int = DEFAULT_MAX_ROWS
    batch_bytes: int = DEFAULT_MAX_BYTES
    check_crcs: bool = True
    on_corrupt: str = "fail"
    on_gap: str = "fail"
    on_missing: str = "fail"
    layout: str | None = None
    rsm_config: str | None = None
    metadata: str | None = None
    segments_from: str | None = None
    log_directory: str | None = None
    leader_epochs: str | None = None
    max_batch_bytes: int = DEFAULT_LIMIT
    kernel: str | None = None
    threads: int | None = None
    read_ahead_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in _PATHS:
            if name == "location" or getattr(self, name) is not None:
                self._set(name, path_of(name, getattr(self, name)))
        for name in _TEXTS:
            require_text(name, getattr(self, name))
        refuse_credentials({name: getattr(self, name) for name in _PATHS})
        if is_cluster(self.location):
            raise OptionError(
                "a loader reads stores, not brokers",
                found=self.location,
                hint="Load what is in the store, then continue with an ordinary consumer at the position reached",
            )
        partitions = parse_partitions(self.partitions)
        if partitions is not None:
            if not partitions:
                raise OptionError("no partition is named", hint="Leave partitions out for all of them")
            if wrong := [one for one in partitions if not 0 <= one < 1 << 31]:
                raise OptionError("not the number of a partition", found=wrong[0], expected="0 to 2147483647")
            self._set("partitions", tuple(sorted(set(partitions))))
        if self.kernel is not None:
            load_kernel(self.kernel)
        if self.layout is not None:
            choose_layouts(self.layout)
        self._learn_schemas()
        self._set("isolation_level", parse_isolation_level(self.isolation_level))
        self._set("offsets", parse_offsets(self.offsets))
        times = parse_time_range(self.since, self.until)
        self._set("since", None if times is None else times.since_ms)
        self._set("until", None if times is None else times.until_ms)
        self._set("on_gap", parse_on_gap(self.on_gap, stacklevel=4))
        options = self.read_options()
        for name in _NUMBERS:
            self._set(name, getattr(options, name))
        self.catalog()

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _learn_schemas(self) -> None:
        decoded = decoded_columns(
            self.columns,
            topic=self.topic,
            key=self.key,
            value=self.value,
            schema_version=self.schema_version,
            on_undecodable=self.on_undecodable,
        )
        for name, value in {**decoded, "schema_version": None, "on_undecodable": None}.items():
            self._set(name, value)

    @property
    def offset_range(self) -> OffsetRange:
        """The offsets asked for."""
        return parse_offsets(self.offsets)

    @property
    def times(self) -> TimeRange:
        """The times asked for."""
        return parse_time_range(self.since, self.until) or TimeRange()

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of what a load gives."""
        return schema_of(self.read_options())

    def read_options(self) -> ReadOptions:
        """How records become record batches."""
        return ReadOptions(**self._of(ReadOptions))

    def catalog(self) -> Catalog:
        """How segments are found at the location."""
        return Catalog(**self._of(Catalog))

    def _of(self, value: type[ReadOptions | Catalog]) -> dict[str, Any]:
        """What this gives of the fields of such a value, which have the same names here."""
        own = {one.name for one in fields(self)}
        return {one.name: getattr(self, one.name) for one in fields(value) if one.name in own}

    def open(self, storage_options: Mapping[str, object] | None = None) -> LocationSource | UrlSource:
        """The location, opened in this process; raises as ``segreader.scan``."""
        return open_source(self.location, storage_options=storage_options, catalog=self.catalog())

    def to_json(self) -> str:
        """The query as text, with the schemas that it learnt, each once."""
        offsets = self.offset_range
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        values["offsets"] = f"{offsets.start}:{'' if offsets.stop is None else offsets.stop}"
        if decodings := self.read_options().decodings:
            values |= dict.fromkeys(_SCHEMAS) | {"decodings": save_decodings(decodings)}
        return write_saved(_KIND, values, _TYPED if decodings else VERSION)

    @classmethod
    def from_json(cls, text: str | bytes) -> LoadQuery:
        """The query that ``to_json`` gave.

        Raises:
            PositionFormatError: it is none.
            PositionVersionError: a newer version wrote it.
            OptionError: a value of it is unknown here.
        """
        saved = SavedFields(_KIND, text, newest=_TYPED)
        known, whole = {one.name for one in fields(cls)} - _SCHEMAS, saved.mapping()
        values = {name: value for name, value in whole.items() if name in known}
        if values.get("on_gap") == "report":  # as 0.1 wrote it
            values["on_gap"] = "skip"
        try:
            return cls(**values | saved_decodings(whole.get("decodings", {"schemas": {}})))
        except OptionError:
            raise
        except (TypeError, ValueError, LookupError) as error:
            raise saved.wrong(error) from error


_NUMBERS = ("split_bytes", "batch_rows", "batch_bytes", "max_batch_bytes", "threads", "read_ahead_bytes")
_SCHEMAS = frozenset(("key", "value", "schema_version", "on_undecodable"))
"""Arguments from which a query learns schemas; none of them is saved, only what was learnt."""

_TEXTS = ("topic", "topic_id", "layout", "segments_from", "kernel")
_PATHS = ("location", "rsm_config", "metadata", "log_directory", "leader_epochs")
