"""Where a table is, as a value that travels to other processes; each opens it for itself."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Final

from segreader.backfill.lake.iceberg_store import store_options
from segreader.backfill.lake.table import LakeTable
from segreader.errors import OptionError
from segreader.spark.credentials import is_reference, resolve_storage
from segreader.storage.signed_url import redact
from segreader.values import dataclass

_SECRET: Final = re.compile(r"secret|passw|token|credential|access-key|sas|account-key", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlace:
    """A table of Iceberg or Delta.

    Args:
        kind: ``iceberg`` or ``delta``.
        name: ``db.orders`` of an Iceberg catalog; the location of a Delta table.
        catalog: of Iceberg, as pyiceberg knows it; ``None`` for its default.
        options: of the catalog, or storage options; a secret among them is ``env:VARIABLE``.
        credentials: of a Delta table: the name of what gives them.

    Raises:
        OptionError: an option of a catalog holds a secret.
    """

    kind: str
    name: str
    catalog: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    credentials: str = "default"

    def __post_init__(self) -> None:
        if self.kind != "iceberg":
            return
        for name, text in self.options.items():
            if _is_secret(name, text):
                raise OptionError(
                    f"the catalog's {name} is a secret, and the command line of a job is seen by others",
                    expected=f"{name}=env:VARIABLE",
                    hint="Or write it into .pyiceberg.yaml",
                )

    @classmethod
    def without_secrets(cls, name: str, catalog: str | None, properties: Mapping[str, str]) -> TablePlace:
        """An Iceberg table of a catalog that is open; each process finds for itself what of it is secret."""
        plain = {one: text for one, text in properties.items() if not _is_secret(one, str(text))}
        return cls(kind="iceberg", name=name, catalog=catalog, options=plain)

    def storage(self, location: str, *, is_vended: bool) -> Mapping[str, object]:
        """Storage options for a table's files, as its catalog has them; nothing where it says nothing of the store.

        Args:
            location: the table's.
            is_vended: whether the catalog gives some with the table: it is asked, and may give others each time.

        Raises:
            OptionError: as ``open``; or they are of a kind that files are not written with here.
        """
        if self.kind != "iceberg":
            return {}
        return self.open().vended() if is_vended else store_options(location, self._resolved())

    def _resolved(self) -> dict[str, str]:
        return {name: _value_of(name, text) for name, text in self.options.items()}

    def open(self) -> LakeTable:
        """The table, with the credentials that this process has.

        Raises:
            OptionError: what it needs is not installed, or an option is unknown.
        """
        if self.kind == "iceberg":
            from segreader.backfill.lake.iceberg import open_iceberg  # one of the two formats is imported

            return open_iceberg(self.name, self.catalog, self._resolved())
        if self.kind == "delta":
            from segreader.backfill.lake.delta import open_delta

            return open_delta(self.name, resolve_storage(self.credentials, self.name, self.options))
        raise OptionError("unknown format of a table", found=self.kind, expected="iceberg or delta")


def _is_secret(name: str, text: str) -> bool:
    return not is_reference(text) and (_SECRET.search(name) is not None or redact(text) != text)


def _value_of(name: str, text: str) -> str:
    if not is_reference(text):
        return text
    variable = text.strip().removeprefix("env:")
    if not (value := os.environ.get(variable)):
        raise OptionError(f"{name}=env:{variable} finds no variable in this process", hint=f"Set {variable}")
    return value
