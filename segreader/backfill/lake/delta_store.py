"""Storage options as deltalake takes them, and its failures as ours."""

from __future__ import annotations

import os
import random
import re
import time
from types import TracebackType
from typing import Final
from urllib.parse import urlsplit

from segreader.errors import AccessDeniedError, ObjectNotFoundError, OptionError, SegreaderError, StorageError
from segreader.storage.cloud.failure import as_of_target, is_full, storage_error
from segreader.storage.options import Kind, StorageOptions
from segreader.storage.signed_url import Secret, redact

_EMULATOR_URL: Final = "AZURITE_BLOB_STORAGE_URL"
_EMULATOR_DEFAULT: Final = "http://127.0.0.1:10000"

_RETRIES: Final = {"retry_timeout": "20s", "timeout": "60s"}
"""How long one request is tried again where the store fails: delta-rs itself takes three minutes, for each request of a
commit, and cannot be interrupted meanwhile."""

_LONGEST_S: Final = 20.0
_MOST_FAILURES: Final = 4


def options_of_delta_rs(kind: Kind, options: StorageOptions) -> dict[str, str]:
    """Storage options under the names that delta-rs has for them."""
    given: dict[str, object] = {}
    if kind is Kind.S3:
        given = {
            "aws_access_key_id": options.key,
            "aws_secret_access_key": options.secret,
            "aws_session_token": options.token,
            "aws_region": options.region,
            "aws_endpoint_url": options.endpoint_url,
            "aws_skip_signature": options.anon,
            "aws_request_payer": options.requester_pays,
            "aws_profile": options.profile,
        }
        if options.addressing_style in ("path", "virtual"):
            given["aws_virtual_hosted_style_request"] = options.addressing_style == "virtual"
    elif kind is Kind.AZURE:
        given = _azure_options(options)
    else:
        token = options.token.reveal() if options.token is not None else ""
        is_text = token.lstrip().startswith("{")
        given = {
            "google_service_account": options.service_account_file or (None if is_text else token or None),
            "google_service_account_key": options.service_account_key or (options.token if is_text else None),
            "google_skip_signature": options.anon,
            "google_base_url": options.endpoint_url,
        }
    if options.ca_file is not None:
        raise OptionError(
            "deltalake does not take ca_file",
            hint="Set the variable SSL_CERT_FILE to it, and leave the option out",
        )
    if options.verify is False:
        given["allow_invalid_certificates"] = True
    if any(str(value).startswith("http://") for value in given.values()):
        given["allow_http"] = True
    found = dict(_RETRIES)
    for name, value in given.items():
        if value is not None:
            text = value.reveal() if isinstance(value, Secret) else value
            found[name] = str(text).lower() if isinstance(text, bool) else str(text)
    return found


def _azure_options(options: StorageOptions) -> dict[str, object]:
    given: dict[str, object] = {
        "azure_storage_account_name": options.account_name,
        "azure_storage_account_key": options.account_key,
        "azure_storage_sas_token": options.sas_token,
        "azure_storage_tenant_id": options.tenant_id,
        "azure_storage_client_id": options.client_id,
        "azure_storage_client_secret": options.client_secret,
        "azure_skip_signature": options.anon,
    }
    if options.account_host is not None:
        given["azure_storage_endpoint"] = f"https://{options.account_host}"
    if options.connection_string is not None:
        parts = dict(part.split("=", 1) for part in options.connection_string.reveal().split(";") if "=" in part)
        names = {
            "AccountName": "azure_storage_account_name",
            "AccountKey": "azure_storage_account_key",
            "SharedAccessSignature": "azure_storage_sas_token",
        }
        given |= {ours: parts[theirs] for theirs, ours in names.items() if parts.get(theirs)}
        account, suffix = parts.get("AccountName", ""), parts.get("EndpointSuffix", "")
        if endpoint := parts.get("BlobEndpoint", "").rstrip("/"):
            given |= _emulator_options(endpoint, account) or {"azure_storage_endpoint": endpoint}
        elif account and suffix:
            given["azure_storage_endpoint"] = f"https://{account}.blob.{suffix}"
    return given


def _emulator_options(endpoint: str, account: str) -> dict[str, object]:
    """Options for Azure's emulator: it alone has the account in the path of its URL. Nothing for Azure itself.

    delta-rs lists a log with ``startFrom``. Azure supports it, the emulator ignores it and returns older files too,
    and delta-rs fails with "Invalid table version". Told that it talks to the emulator, it leaves ``startFrom`` out.

    Raises:
        OptionError: the emulator is elsewhere than delta-rs looks for it, and only a variable can say where.
    """
    root, _, last = endpoint.rpartition("/")
    if not account or last != account:
        return {}
    if os.environ.get(_EMULATOR_URL, _EMULATOR_DEFAULT).rstrip("/") != root:
        raise OptionError(
            "deltalake looks for Azure's emulator at another address",
            found=redact(os.environ.get(_EMULATOR_URL, f"{_EMULATOR_DEFAULT}, for {_EMULATOR_URL} is not set")),
            expected=redact(root),
            hint=f"Set the variable {_EMULATOR_URL} to it: deltalake has no option for that",
        )
    return {"azure_storage_use_emulator": True}


class Patience:
    """Retries of what delta-rs does not repeat by itself, such as writes: the first one may have arrived."""

    def __init__(self) -> None:
        self._until = time.monotonic() + _LONGEST_S
        self._failures = 0

    def lasts(self, error: StorageError) -> bool:
        """Whether to try again, after a pause; not where the store refuses, or has failed for long."""
        self._failures += 1
        is_final = is_full(error) or isinstance(error, AccessDeniedError | ObjectNotFoundError)
        if is_final or self._failures >= _MOST_FAILURES or time.monotonic() > self._until:
            return False
        time.sleep(random.uniform(0.5, 1) * 0.5 * 2 ** (self._failures - 1))
        return True


_STATUS: Final = re.compile(r"\bstatus(?: code)?:? ?(?:code )?(\d{3})\b|\b(40[0-9]|412|429|50[0-9]) [A-Z][a-z]+")
_S3_CODE: Final = re.compile(r"<Code>(\w{1,60})</Code>")
_OF_A_STORE: Final = re.compile(r"://|Generic \w+ error|performing|object.store", re.IGNORECASE)
"""In texts that may quote an answer."""
_BROKEN_OFF: Final = re.compile(r"\bbody error|reading a body|connection (?:closed|reset)")
_LONGEST_TEXT: Final = 200
_NO_DIRECTORY: Final = re.compile(r"Could not create local directory.*\bcode: (\d{1,3})\b", re.DOTALL)
"""deltalake raises it as ``TableNotFoundError``, as if there had been a table to find."""
_NUMBER: Final = re.compile(r"\(os error (\d{1,3})\)")


class DeltaFailures:
    """Turns what deltalake raises into our errors, whose texts hold no credential: its own quote the store.

    Args:
        source: the table.
        but: what is left as it is.
    """

    def __init__(self, source: str, but: type[Exception] | tuple[()] = ()) -> None:
        self._source, self._but = source, but

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not isinstance(error, Exception) or isinstance(error, SegreaderError | ImportError):
            return
        if isinstance(error, self._but):
            return
        ours = self._translated(error)
        del error, traceback  # a traceback that shows variables would show them
        try:
            raise ours from None
        finally:
            ours.__context__ = None

    def _translated(self, error: Exception) -> StorageError:
        from deltalake.exceptions import DeltaError, TableNotFoundError

        text = str(error)
        if (number := _NO_DIRECTORY.search(text)) is not None:
            return StorageError(
                "the table's directory cannot be made",
                source=self._source,
                found=os.strerror(int(number[1])),
                hint="Give a directory on a disk that this user can write to",
            )
        if isinstance(error, TableNotFoundError):
            return ObjectNotFoundError(
                "there is no Delta table", source=self._source, hint="Check its location, or create it first"
            )
        if (number := _NUMBER.search(text)) is not None and not isinstance(error, FileNotFoundError):
            error = OSError(int(number[1]), os.strerror(int(number[1])))  # of the class that the number says
        elif not isinstance(error, OSError) or (_STATUS.search(text) or _S3_CODE.search(text)):
            status, code = _STATUS.search(text), _S3_CODE.search(text)
            if status or code:
                error = _DeltaStoreError(int(status[1] or status[2]) if status else None, code[1] if code else "")
            elif isinstance(error, DeltaError) and not _OF_A_STORE.search(text):
                return StorageError(
                    "deltalake cannot read or write the table",
                    source=self._source,
                    found=redact(text.partition("\n")[0])[:_LONGEST_TEXT],
                    hint="Check the version of deltalake, and the features of the table: DESCRIBE DETAIL",
                )
        elif _BROKEN_OFF.search(text):
            error = ConnectionError()
        scheme = urlsplit(self._source).scheme
        bucket = f"{scheme}://{urlsplit(self._source).netloc.rpartition('@')[2]}/" if scheme else None
        hint = "Check the credentials and rights that storage_options give, and those that deltalake finds"
        return as_of_target(storage_error(error, self._source, hint, listed=bucket))


class _DeltaStoreError(Exception):
    """What of an answer of the store is shown."""

    def __init__(self, status: int | None, code: str) -> None:
        super().__init__()
        self.status = status
        self.error_code = code
