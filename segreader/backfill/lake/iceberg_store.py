"""What an Iceberg catalog says of a table's store, as our storage options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from segreader.errors import OptionError
from segreader.storage.options import Kind, kind_of

_STORES: Final = ("s3.", "client.", "adls.", "gcs.")
_S3: Final = {
    "key": ("s3.access-key-id", "client.access-key-id"),
    "secret": ("s3.secret-access-key", "client.secret-access-key"),
    "token": ("s3.session-token", "client.session-token"),
    "region": ("s3.region", "client.region"),
    "endpoint_url": ("s3.endpoint",),
    "profile": ("s3.profile-name", "client.profile-name"),
    "anon": ("s3.anonymous",),
}
_AZURE: Final = {
    "connection_string": ("adls.connection-string",),
    "account_name": ("adls.account-name",),
    "account_key": ("adls.account-key",),
    "sas_token": ("adls.sas-token",),
    "tenant_id": ("adls.tenant-id",),
    "client_id": ("adls.client-id",),
    "client_secret": ("adls.client-secret",),
    "account_host": ("adls.account-host",),
    "anon": ("adls.anon",),
}
_GOOGLE: Final = {"project": ("gcs.project-id",), "endpoint_url": ("gcs.service.host",)}
_OF_KIND: Final[Mapping[Kind, Mapping[str, tuple[str, ...]]]] = {Kind.S3: _S3, Kind.AZURE: _AZURE, Kind.GCS: _GOOGLE}
_HINT: Final = (
    "Give credentials for the store: storage_options in Python; for a job --target-option, or --target-credentials "
    "default for those that the cloud's client finds"
)


def store_options(location: str, properties: Mapping[str, str]) -> dict[str, object]:
    """Storage options for the files at a location; nothing where the properties say nothing of its store.

    Args:
        location: of the table.
        properties: of a catalog, or of a table's ``io``.

    Raises:
        OptionError: they say how to reach the store in a way that files are not written in here.
    """
    kind = kind_of(location)
    names = _OF_KIND.get(kind)
    if names is None:
        return {}
    found: dict[str, object] = {}
    for ours, theirs in names.items():
        if text := next((properties[name] for name in theirs if properties.get(name)), None):
            found[ours] = text
    if kind is Kind.S3 and "key" not in found:
        if properties.get("s3.remote-signing-enabled", "").lower() == "true" or properties.get("s3.signer"):
            raise _unusable("each request signed by the catalog")
        if "s3.role-arn" in properties or "client.role-arn" in properties:
            raise _unusable("a role to be assumed")
    if kind is Kind.S3 and properties.get("s3.force-virtual-addressing", "").lower() == "true":
        found["addressing_style"] = "virtual"
    if kind is Kind.AZURE:
        host = urlsplit(location).netloc.rpartition("@")[2]
        if token := properties.get(f"adls.sas-token.{host}"):
            found["sas_token"] = token
        if "." in host and found and "connection_string" not in found:
            found.setdefault("account_name", host.partition(".")[0])
        if properties.get("adls.token") and not found.keys() & {"sas_token", "account_key", "connection_string"}:
            raise _unusable("a token of Entra ID")
    if kind is Kind.GCS and properties.get("gcs.oauth2.token"):
        raise _unusable("a token of Google's")
    return found


def vended_options(
    location: str, properties: Mapping[str, str], of_the_catalog: Mapping[str, str]
) -> dict[str, object]:
    """Storage options where the catalog gave some with the table that its own settings do not have; else nothing.

    Args:
        properties: of the table's ``io``.
        of_the_catalog: the settings that the catalog was opened with.

    Raises:
        OptionError: as ``store_options``.
    """
    is_vended = any(name.startswith(_STORES) and of_the_catalog.get(name) != text for name, text in properties.items())
    return store_options(location, properties) if is_vended else {}


def _unusable(found: str) -> OptionError:
    return OptionError(
        "the catalog gives access to the table's files in a way that tasks cannot write with",
        found=found,
        expected="an access key, a shared access signature or a connection string",
        hint=_HINT,
    )
