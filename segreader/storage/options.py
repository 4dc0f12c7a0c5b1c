"""Storage options: their names, their values, which nothing shows, and the sources they are taken from.

Names are those of s3fs, adlfs and gcsfs; those of Polars, delta-rs and the clouds' own variables are accepted too. The
fields of ``StorageOptions`` are the one list of them. What is given wins over the environment, and that over files;
what none of them sets is left to the cloud's own library, which reads its own variables and files.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, SupportsIndex

from segreader.errors import VARIABLES_HINT, OptionError, UntrustedLocationError
from segreader.storage.signed_url import Secret, redact
from segreader.values import dataclass

if TYPE_CHECKING:
    from segreader.storage.guard import AddressPolicy


class Kind(StrEnum):
    """What a location is read with."""

    S3 = "s3"
    AZURE = "azure"
    GCS = "gcs"
    HTTP = "http"
    LOCAL = "local"
    OTHER = "other"


_KINDS = {
    **dict.fromkeys(("s3", "s3a", "s3n"), Kind.S3),
    **dict.fromkeys(("abfs", "abfss", "az", "wasb", "wasbs"), Kind.AZURE),
    **dict.fromkeys(("gs", "gcs"), Kind.GCS),
    **dict.fromkeys(("http", "https"), Kind.HTTP),
    **dict.fromkeys(("file", "local", ""), Kind.LOCAL),
}
_WORDS = {
    Kind.S3: "S3",
    Kind.AZURE: "Azure",
    Kind.GCS: "Google Cloud Storage",
    Kind.HTTP: "lists of URLs",
    Kind.LOCAL: "directories",
    Kind.OTHER: "other stores",
}
ENVIRONMENT = "SEGREADER_STORAGE_"
_LARGEST_FILE = 1 << 20
_LONGEST_NAME = 40
_TRUE = frozenset(("true", "1", "yes", "on"))
_FALSE = frozenset(("false", "0", "no", "off"))


def kind_of(location: str) -> Kind:
    """What a location is read with, by its scheme."""
    scheme = location.partition(":")[0].lower() if "://" in location or location.startswith("file:") else ""
    return _KINDS.get(scheme, Kind.OTHER)


def _text(name: str, value: object) -> str:
    text = value.reveal() if isinstance(value, Secret) else value
    if not isinstance(text, str) or not text.strip():
        raise OptionError(f"{name} is not text, or is empty")
    return text.strip()


def _secret(name: str, value: object) -> Secret:
    if isinstance(value, Mapping):  # a service account's key, as gcsfs takes it
        return Secret(json.dumps(dict(value)))
    return Secret(_text(name, value))


def _place(name: str, value: object) -> str:
    text = _text(name, value)
    if redact(text) != text or "@" in text:
        raise OptionError(f"{name} holds a credential", found=redact(text), hint="Give it as an option of its own")
    return text


def _boolean(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    text = _text(name, value).lower()
    if text not in _TRUE | _FALSE:
        raise OptionError(f"{name} is neither true nor false")
    return text in _TRUE


def _count(name: str, value: object) -> int:
    text = str(index(value)) if isinstance(value, SupportsIndex) and not isinstance(value, bool) else _text(name, value)
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= _LARGEST_COUNTS[name]:
        raise OptionError(f"{name} must be a number from 1 to {_LARGEST_COUNTS[name]}", found=repr(text[:20]))
    return int(text)


def _payer(name: str, value: object) -> bool:
    return value == "requester" or _boolean(name, value)


def _style(name: str, value: object) -> str:
    if isinstance(value, bool) or _text(name, value).lower() in _TRUE | _FALSE:
        return "virtual" if _boolean(name, value) == ("virtual" in name) else "path"
    text = _text(name, value).lower()
    if text not in ("auto", "path", "virtual"):
        raise OptionError(f"{name} is not an addressing style", expected="auto, path or virtual")
    return text


def _hosts(name: str, value: object) -> tuple[str, ...]:
    from segreader.storage.guard import AddressPolicy

    given = value if isinstance(value, list | tuple) else _text(name, value).split(",")
    hosts = tuple(_text(name, host) for host in given)
    try:
        AddressPolicy().with_hosts(hosts)
    except UntrustedLocationError as error:
        raise OptionError(f"{name} names no host", found=error.source, expected="host, host:port or a URL") from None
    return hosts


@dataclass(frozen=True, slots=True)
class _Setting:
    """What an option is for, how its value is read, and other spellings of its name."""

    kinds: tuple[Kind, ...]
    parse: Callable[[str, object], object]
    aliases: str = ""
    is_credential: bool = False


_LARGEST_COUNTS: Final = {"in_flight": 256, "range_size": 1 << 30}

_S3, _AZURE, _GCS = (Kind.S3,), (Kind.AZURE,), (Kind.GCS,)
_S3_GCS, _CLOUDS = (Kind.S3, Kind.GCS), (Kind.S3, Kind.AZURE, Kind.GCS)
_ANY = (*_CLOUDS, Kind.HTTP)

_SETTINGS = {
    "key": _Setting(_S3, _secret, "access_key_id aws_access_key_id access_key username", True),
    "secret": _Setting(_S3, _secret, "secret_access_key aws_secret_access_key secret_key password", True),
    "token": _Setting(_S3_GCS, _secret, "session_token aws_session_token aws_token", True),
    "region": _Setting(_S3, _text, "aws_region region_name default_region aws_default_region"),
    "endpoint_url": _Setting(_S3_GCS, _place, "endpoint aws_endpoint aws_endpoint_url aws_endpoint_url_s3"),
    "profile": _Setting(_S3, _text, "profile_name aws_profile", True),
    "anon": _Setting(_CLOUDS, _boolean, "anonymous skip_signature aws_skip_signature no_sign_request", True),
    "requester_pays": _Setting(_S3_GCS, _payer, "request_payer aws_request_payer"),
    "addressing_style": _Setting(
        _S3, _style, "path_style force_path_style virtual_hosted_style_request aws_virtual_hosted_style_request"
    ),
    "account_name": _Setting(_AZURE, _text, "storage_account_name azure_storage_account_name azure_storage_account"),
    "account_key": _Setting(_AZURE, _secret, "storage_account_key azure_storage_account_key azure_storage_key", True),
    "connection_string": _Setting(_AZURE, _secret, "azure_storage_connection_string", True),
    "sas_token": _Setting(_AZURE, _secret, "sas_key azure_storage_sas_token azure_storage_sas_key", True),
    "tenant_id": _Setting(_AZURE, _text, "azure_tenant_id azure_storage_tenant_id", True),
    "client_id": _Setting(_AZURE, _text, "azure_client_id azure_storage_client_id", True),
    "client_secret": _Setting(_AZURE, _secret, "azure_client_secret azure_storage_client_secret", True),
    "account_host": _Setting(_AZURE, _place),
    "project": _Setting(_GCS, _text, "project_id google_cloud_project"),
    "service_account_file": _Setting(
        _GCS,
        _text,
        "service_account service_account_path google_service_account google_service_account_path "
        "application_credentials google_application_credentials",
        True,
    ),
    "service_account_key": _Setting(_GCS, _secret, "google_service_account_key", True),
    "ca_file": _Setting(_ANY, _text, "ca_bundle aws_ca_bundle"),
    "verify": _Setting(_ANY, _boolean, "verify_tls"),
    "in_flight": _Setting(_ANY, _count),
    "range_size": _Setting(_ANY, _count),
    "allow_hosts": _Setting(_ANY, _hosts),
    "allow_private": _Setting(_ANY, _boolean),
    "allow_http": _Setting(_ANY, _boolean, "aws_allow_http"),
}
_CREDENTIALS = frozenset(name for name, setting in _SETTINGS.items() if setting.is_credential)
NAMES = {spelling: name for name, setting in _SETTINGS.items() for spelling in (name, *setting.aliases.split())}
"""Every name that is taken, and the field that it sets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageOptions:
    """The options of one location. Secrets are shown as ``***`` and are not in a pickle of it.

    Args:
        key, secret, token: S3's access key, its secret and a session's token. For Google, ``token`` is what gcsfs
            takes: the path or the text of a key file, or ``cloud``, ``google_default``, ``anon``.
        region: S3 region.
        endpoint_url: of an S3-compatible store, or another host of Google's.
        profile: name in the AWS configuration files.
        anon: no credentials: a public bucket.
        requester_pays: the reader of the bucket pays for it.
        addressing_style: the place of S3's bucket in a URL: ``auto``, ``path`` or ``virtual``. ``path_style=true``
            is ``path``.
        account_name, account_key, connection_string, sas_token: of an Azure storage account.
        tenant_id, client_id, client_secret: of a service principal of Entra ID.
        account_host: of a sovereign or private Azure cloud.
        project: Google's.
        service_account_file: path of a Google service account's key file.
        service_account_key: the text of that file.
        in_flight: requests for bodies at once.
        range_size: bytes of one of them.
        ca_file: certificates to trust in place of the system's.
        verify: ``False`` trusts any certificate: anyone on the way can read and change the data.
        allow_hosts: hosts that URLs from outside may name besides the clouds' own: ``minio.corp:9000``.
        allow_private: whether those may be at private and loopback addresses.
        allow_http: whether http will do.
    """

    key: Secret | None = None
    secret: Secret | None = None
    token: Secret | None = None
    region: str | None = None
    endpoint_url: str | None = None
    profile: str | None = None
    anon: bool | None = None
    requester_pays: bool | None = None
    addressing_style: str | None = None
    account_name: str | None = None
    account_key: Secret | None = None
    connection_string: Secret | None = None
    sas_token: Secret | None = None
    tenant_id: str | None = None
    client_id: str | None = None
    client_secret: Secret | None = None
    account_host: str | None = None
    project: str | None = None
    service_account_file: str | None = None
    service_account_key: Secret | None = None
    in_flight: int | None = None
    range_size: int | None = None
    ca_file: str | None = None
    verify: bool | None = None
    allow_hosts: tuple[str, ...] | None = None
    allow_private: bool | None = None
    allow_http: bool | None = None

    def __post_init__(self) -> None:
        if (self.key is None) != (self.secret is None):
            missing = "key" if self.key is None else "secret"
            raise OptionError(f"{missing} is missing", hint="An S3 access key is two texts: key and secret")
        if self.anon and (
            signing := sorted(name for name in _CREDENTIALS - {"anon"} if getattr(self, name) is not None)
        ):
            raise OptionError("anon=true and credentials exclude each other", found=", ".join(signing))


def canonical_name(name: str) -> str:
    """The field that an option's name sets.

    Raises:
        OptionError: there is no such option, with the nearest that there is.
    """
    found = NAMES.get(name.strip().lower().replace("-", "_"))
    if found is None:
        near = difflib.get_close_matches(name[:_LONGEST_NAME].lower(), NAMES, 1)
        shown = (
            repr(name) if name.replace("_", "").isalpha() and len(name) < _LONGEST_NAME else "a name that is not shown"
        )
        raise OptionError(
            "unknown storage option",
            found=shown,
            expected=None if near else ", ".join(_SETTINGS),
            hint=f"Did you mean {near[0]!r}?" if near else None,
        )
    return found


def parse_values(given: Mapping[str, object], kind: Kind | None = None) -> dict[str, Any]:
    """Fields and their values from names in any known spelling; values may be text.

    ``client_kwargs`` and ``config_kwargs``, as s3fs takes them, are looked into for the settings that are known here.

    Args:
        kind: what the location is read with; ``None`` takes options of all kinds.

    Raises:
        OptionError: it is no mapping; a name is unknown, given twice, or of another kind of store; or a value is none.
    """
    _require_options(given)
    values: dict[str, Any] = {}
    for spelling, value in _flat(given):
        name = canonical_name(spelling)
        if value is None:
            continue
        setting = _SETTINGS[name]
        if kind is not None and kind not in setting.kinds:
            *some, last = (_WORDS[each] for each in setting.kinds)
            words = f"{', '.join(some)} and {last}" if some else last
            raise OptionError(f"the storage option {name} is for {words}, and this is read from {_WORDS[kind]}")
        parsed = setting.parse(spelling.lower().replace("-", "_"), value)
        if values.get(name, parsed) != parsed:
            raise OptionError(f"the storage option {name} is given twice, with two values")
        values[name] = parsed
    return values


def _require_options(given: object) -> None:
    if not isinstance(given, Mapping):
        raise OptionError("storage options must be a mapping", found=type(given).__name__, expected="{name: value}")
    for name in given:
        if not isinstance(name, str):
            raise OptionError("names of storage options must be text", found=type(name).__name__)


def _flat(given: Mapping[str, object]) -> Iterable[tuple[str, object]]:
    for name, value in given.items():
        if name in ("client_kwargs", "config_kwargs", "s3") and isinstance(value, Mapping):
            yield from _flat(value)
        elif name == "verify" and isinstance(value, str) and value.lower() not in _TRUE | _FALSE:
            yield "ca_file", value  # botocore's way
        elif (name, value) != ("signature_version", "s3v4"):
            yield name, value


def override(values: Mapping[str, Any], lower: Mapping[str, Any]) -> dict[str, Any]:
    """Values over values of less weight. Credentials are one thing: half of one source and half of another is none."""
    if any(name in _CREDENTIALS and value is not False for name, value in values.items()):
        lower = {name: value for name, value in lower.items() if name not in _CREDENTIALS}
    return {**lower, **values}


def only_for(kind: Kind, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that mean something for this kind of store."""
    return {name: value for name, value in values.items() if kind in _SETTINGS[name].kinds}


def options_without_secrets(location: str, given: Mapping[str, object]) -> dict[str, object]:
    """The options of a location as they may travel to another process, which finds its credentials for itself.

    Raises:
        OptionError: one is a secret, or may be; its value is not shown.
    """
    kind = kind_of(location) if location else None
    if kind is Kind.OTHER:
        if given:
            raise OptionError(
                "the storage options may hold a secret, which cannot travel to another process",
                found=", ".join(sorted(given)),
                hint="Put them into fsspec's configuration files on each machine, and leave them out here",
            )
        return {}
    values = parse_values(given, kind)
    secrets = sorted(name for name, value in values.items() if isinstance(value, Secret))
    if secrets:
        raise OptionError(
            "the storage options hold a secret, which cannot travel to another process",
            found=", ".join(secrets),
            hint=f"Leave it out, and set it on each machine: as SEGREADER_STORAGE_{secrets[0].upper()}, in its "
            "configuration file, or as the cloud's own clients find it",
        )
    return values


def for_s3fs(options: StorageOptions) -> dict[str, Any]:
    """Arguments of ``s3fs.S3FileSystem``; what is not set is left to what AWS clients read themselves."""
    verify = False if options.verify is False else options.ca_file
    style = {"addressing_style": options.addressing_style} if options.addressing_style else None
    return _given(
        key=options.key,
        secret=options.secret,
        token=options.token,
        anon=options.anon,
        profile=options.profile,
        endpoint_url=options.endpoint_url,
        requester_pays=options.requester_pays,
        client_kwargs=_given(region_name=options.region, verify=verify) or None,
        config_kwargs={"s3": style} if style else None,
    )


def for_adlfs(options: StorageOptions) -> dict[str, Any]:
    """Arguments of ``adlfs.AzureBlobFileSystem``; with none it asks ``DefaultAzureCredential``."""
    names = ("account_name", "account_key", "connection_string", "sas_token", "tenant_id", "client_id", "client_secret")
    return _given(**{name: getattr(options, name) for name in (*names, "account_host", "anon")})


def for_gcsfs(options: StorageOptions) -> dict[str, Any]:
    """Arguments of ``gcsfs.GCSFileSystem``; with none it looks for Google's default credentials."""
    token: object = "anon" if options.anon else options.service_account_file
    for secret in (options.service_account_key, options.token):
        if secret is not None:
            text = secret.reveal()
            token = _json(text) if text.lstrip().startswith("{") else text
    return _given(
        token=token,
        project=options.project,
        endpoint_url=options.endpoint_url,
        requester_pays=options.requester_pays,
    )


def address_policy(options: StorageOptions) -> AddressPolicy:
    """Where URLs from outside may lead: the clouds, the configured endpoint, and what is allowed by name."""
    from segreader.storage.guard import AddressPolicy

    policy = AddressPolicy(allow_private=bool(options.allow_private), allow_http=bool(options.allow_http))
    if options.endpoint_url is not None:
        policy = policy.with_endpoint(options.endpoint_url)
    return policy.with_hosts(options.allow_hosts or ())


def _given(**values: Any) -> dict[str, Any]:
    """What is set, with secrets as text: the last step before a client is made of it."""
    return {
        name: value.reveal() if isinstance(value, Secret) else value
        for name, value in values.items()
        if value is not None
    }


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        raise OptionError("the service account's key is not JSON", expected="the text of its key file") from None


def parse_storage_option(text: str, environ: Mapping[str, str] | None = None) -> tuple[str, Secret]:
    """Name and value of ``name=value``, ``name=@file`` or ``name=env:VARIABLE``.

    Only the last two keep a secret out of the process list and the shell's history.

    Raises:
        OptionError: there is no ``=``, no such file or no such variable.
    """
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise OptionError("a storage option has the form name=value, name=@file or name=env:VARIABLE")
    return name.strip(), Secret(_fetch(name.strip(), value, os.environ if environ is None else environ, Path()))


def parse_storage_options(texts: Iterable[str], environ: Mapping[str, str] | None = None) -> dict[str, Secret]:
    """The options of a command line; a later one of the same name wins."""
    return dict(parse_storage_option(text, environ) for text in texts)


def revealed(given: Mapping[str, object]) -> dict[str, object]:
    """The same options with secrets as text, for a filesystem whose options are not known here.

    Raises:
        OptionError: they are no mapping, or a name is no text.
    """
    _require_options(given)
    return {name: value.reveal() if isinstance(value, Secret) else value for name, value in given.items()}


def find_storage_options(
    location: str,
    given: Mapping[str, object] | StorageOptions | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    files: Iterable[Path] | None = None,
) -> StorageOptions:
    """The options of one location, from all sources.

    Args:
        location: whose kind decides which options mean something, and which tables of the files are for it.
        given: by flag or argument: weighs most, and must be for this kind of location.
        environ: variables ``SEGREADER_STORAGE_<NAME>``; this process's by default.
        files: weightiest first; ``segreader.toml`` here and ``~/.config/segreader/config.toml`` by default.

    Raises:
        OptionError: an option is unknown, or its value is none; the file or variable is named.
    """
    if isinstance(given, StorageOptions):
        return given
    environ = os.environ if environ is None else environ
    kind = kind_of(location)
    values = parse_values({} if given is None else given, kind)
    values = override(values, only_for(kind, _read_environment(environ)))
    for file in config_files(environ) if files is None else files:
        for table in _read_tables(file, location, environ):
            values = override(values, only_for(kind, table))
    return StorageOptions(**values)


def config_files(environ: Mapping[str, str]) -> list[Path]:
    """The files that are read if they are there, weightiest first."""
    home = environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME") or Path.home()) / ".config"
    return [Path("segreader.toml"), Path(home) / "segreader" / "config.toml"]


def _fetch(name: str, value: str, environ: Mapping[str, str], directory: Path) -> str:
    """A value, or what it points to."""
    shown = name if name.replace("_", "").isalpha() else "a storage option"
    if value.startswith("@"):
        try:
            with (directory / value[1:]).expanduser().open(encoding="utf-8") as file:
                return file.read(_LARGEST_FILE).strip()
        except (OSError, ValueError, RuntimeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a text file"
            raise OptionError(f"the file that {shown} names cannot be read", found=reason) from None
    if value.startswith("env:"):
        variable = value.removeprefix("env:")
        if variable not in environ:
            raise OptionError(
                f"the variable that {shown} names is not set", found=variable if variable.isidentifier() else None
            )
        return environ[variable]
    return value


def _read_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for variable, value in sorted(environ.items()):
        if variable.startswith(ENVIRONMENT) and value:
            try:
                parsed = parse_values({variable.removeprefix(ENVIRONMENT).lower(): value})
            except OptionError as error:
                raise error.located(source=f"the variable {variable}", hint=VARIABLES_HINT) from None
            if any(values.get(name, one) != one for name, one in parsed.items()):
                raise OptionError("two variables set one storage option", found=variable, hint=VARIABLES_HINT)
            values |= parsed
    return values


def _read_tables(file: Path, location: str, environ: Mapping[str, str]) -> list[dict[str, Any]]:
    """A file's options for a location, weightiest first: tables of longer locations before those of shorter ones."""
    try:
        with file.open("rb") as stream:
            import tomllib

            storage = tomllib.loads(stream.read(_LARGEST_FILE).decode()).get("storage", {})
    except FileNotFoundError:
        return []
    except OSError as error:
        raise OptionError("the configuration file cannot be read", source=str(file), found=error.strerror) from None
    except ValueError:  # its text would quote the line
        raise OptionError("the configuration file is not TOML", source=str(file)) from None
    if not isinstance(storage, dict):
        raise OptionError("[storage] is not a table", source=str(file))
    tables = {name: table for name, table in storage.items() if "://" in name or name.startswith("/")}
    general = {name: value for name, value in storage.items() if name not in tables}
    found = []
    for name in sorted((name for name in tables if _is_below(location, name)), key=len, reverse=True):
        found.append(_parse_table(file, tables[name], environ))
    return [*found, _parse_table(file, general, environ)]


def _is_below(location: str, place: str) -> bool:
    place = place.rstrip("/")
    return location.rstrip("/") == place or location.startswith(f"{place}/")


def _parse_table(file: Path, table: object, environ: Mapping[str, str]) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise OptionError("a location in [storage] has no table of options", source=str(file))
    try:
        return parse_values(
            {
                name: _fetch(name, value, environ, file.parent) if isinstance(value, str) else value
                for name, value in table.items()
            }
        )
    except OptionError as error:
        raise error.located(source=str(file)) from None
