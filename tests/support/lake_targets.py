"""The targets of a backfill as a command line names them, and what their readers see."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from backfill_runs import table_of

Key = tuple[str, int, int]
"""Topic, partition and offset of a record."""


class Target:
    """A target below a directory, of one kind: ``parquet``, ``delta`` or ``iceberg``."""

    def __init__(self, kind: str, place: Path) -> None:
        self.kind, self.place = kind, place
        place.mkdir(parents=True, exist_ok=True)

    @property
    def flags(self) -> list[str]:
        """The flags that name it, of a backfill and of its verification."""
        if self.kind == "iceberg":
            options = [f"{name}={text}" for name, text in self.catalog_options.items()]
            return ["--to", "iceberg", "--table", "db.records"] + [
                word for text in options for word in ("--catalog-option", text)
            ]
        return ["--to", self.kind, "--target", str(self.place / "out")]

    @property
    def catalog_options(self) -> dict[str, str]:
        """Of pyiceberg's SQL catalog in SQLite."""
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.place}/catalog.db",
            "warehouse": f"file://{self.place}/warehouse",
        }

    @property
    def files(self) -> Path:
        """The directory that holds the files and the ledger."""
        return self.place / "warehouse" / "db" / "records" if self.kind == "iceberg" else self.place / "out"

    def read(self) -> pa.Table:
        """What a reader of this kind of target sees: pyarrow, deltalake or pyiceberg."""
        if self.kind == "parquet":
            return table_of(self.files)
        if self.kind == "delta":
            from deltalake import DeltaTable

            return DeltaTable(str(self.files)).to_pyarrow_table()
        from pyiceberg.catalog import load_catalog

        return load_catalog("default", **self.catalog_options).load_table("db.records").scan().to_arrow()

    def commits(self) -> list[str]:
        """What each commit to it says of where it ends, oldest first; of a directory, the splits of each round."""
        if self.kind == "parquet":
            rounds = [json.loads(path.read_text())["splits"] for path in sorted(self.files.glob("_manifest*.json"))]
            return sorted(" ".join(split["split"] for split in one) for one in rounds)
        if self.kind == "delta":
            from deltalake import DeltaTable

            told: list[dict[str, Any]] = DeltaTable(str(self.files)).history()[::-1]
        else:
            from pyiceberg.catalog import load_catalog

            table = load_catalog("default", **self.catalog_options).load_table("db.records")
            told = [dict(one.summary.additional_properties) for one in table.snapshots() if one.summary]
        return [one["segreader.offsets"] for one in told if "segreader.offsets" in one]

    def keys(self) -> Counter[Key]:
        """Every record's place, and how often it is there."""
        rows: list[dict[str, Any]] = self.read().select(["topic", "partition", "offset"]).to_pylist()
        return Counter((row["topic"], row["partition"], row["offset"]) for row in rows)
