"""Where a job writes, as it travels to tasks: a location and the name of what gives credentials, never a value."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from segreader.errors import OptionError
from segreader.spark.credentials import parse_provider, resolve_storage
from segreader.spark.option_names import STORAGE, require_usable
from segreader.spark.worker import this_worker
from segreader.storage.signed_url import redact
from segreader.storage.target.store import TargetStore, open_target


@dataclass(frozen=True, slots=True)
class Destination:
    """The target of a job; each process opens it for itself.

    Args:
        location: a directory, or the URL of one in a bucket.
        credentials: name of the provider, as the option of the data source; see ``segreader.spark.credentials``.
        settings: storage options; a secret among them is ``env:VARIABLE``.

    Raises:
        OptionError: one of them holds a credential.
    """

    location: str
    credentials: str = "default"
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parse_provider(self.credentials)
        require_usable({f"{STORAGE}{name.lower()}": text for name, text in self.settings.items()})
        if any(redact(text) != text for text in (self.location, *self.settings.values())):
            raise OptionError(
                "the target holds a credential, and a job shows its target to everyone",
                found=redact(self.location),
                hint="Name what gives credentials instead: default, env:PREFIX or module:callable",
            )

    def open(self) -> TargetStore:
        """The target, with the credentials that this process has."""
        return open_target(self.location, self._storage())

    def kept(self) -> AbstractContextManager[TargetStore]:
        """The target for the time of a block, over a client that this worker keeps.

        The provider of credentials is asked all the same: where it gives others, the client is opened anew.
        """
        return this_worker().target(self.location, self._storage())

    def _storage(self) -> Mapping[str, object]:
        return resolve_storage(self.credentials, self.location, self.settings)
