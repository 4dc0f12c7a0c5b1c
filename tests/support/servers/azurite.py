"""azurite: Azure Blob storage that checks keys and shared access signatures. Needs npm, and fetches it once.

It is kept in ``build/servers/azurite``; ``SEGREADER_AZURITE`` names another directory with a ``node_modules``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from servers.process import NotAvailableError, free_port, running

VERSION = "3.35.0"
_CACHE = Path(__file__).parents[3] / "build" / "servers" / "azurite"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The key of azurite's built-in account, the same for everyone. Source: azurite's README."""


@dataclass(frozen=True, slots=True)
class AzureServer:
    """A running Azure Blob service with one container."""

    endpoint: str
    account: str = "devstoreaccount1"
    key: str = field(default=_KEY, repr=False)
    container: str = "segments"

    @property
    def connection_string(self) -> str:
        """Everything a client needs, as Azure's portal shows it."""
        return (
            f"DefaultEndpointsProtocol=http;AccountName={self.account};AccountKey={self.key};"
            f"BlobEndpoint={self.endpoint};"
        )

    @property
    def storage_options(self) -> dict[str, object]:
        """What a user would give."""
        return {"connection_string": self.connection_string}

    def _service(self) -> Any:
        from azure.storage.blob import BlobServiceClient

        return BlobServiceClient.from_connection_string(self.connection_string)

    def upload(self, objects: Mapping[str, bytes]) -> None:
        """Put the objects into the container, which is made if it is not there."""
        with self._service() as service:
            container = service.get_container_client(self.container)
            if not container.exists():
                container.create_container()
            for name, data in objects.items():
                container.upload_blob(name, data, overwrite=True)

    def delete(self, name: str) -> None:
        """Remove one object."""
        with self._service() as service:
            service.get_blob_client(self.container, name).delete_blob()

    def sas_token(self, expires_s: int = 3600) -> str:
        """A shared access signature that lists and reads the container."""
        from azure.storage.blob import ContainerSasPermissions, generate_container_sas

        token: str = generate_container_sas(
            self.account,
            self.container,
            account_key=self.key,
            permission=ContainerSasPermissions(read=True, list=True),
            expiry=datetime.now(UTC) + timedelta(seconds=expires_s),
        )
        return token

    def signed_url(self, name: str, expires_s: int = 3600) -> str:
        """A URL that reads one object, with a signature for that object alone."""
        from azure.storage.blob import BlobSasPermissions, generate_blob_sas

        token = generate_blob_sas(
            self.account,
            self.container,
            name,
            account_key=self.key,
            permission=BlobSasPermissions(read=True),
            expiry=datetime.now(UTC) + timedelta(seconds=expires_s),
        )
        with self._service() as service:
            return f"{service.get_blob_client(self.container, name).url}?{token}"


@contextlib.contextmanager
def azurite(directory: Path) -> Iterator[AzureServer]:
    """An azurite, until the block ends."""
    program = _program()
    port = free_port()
    data = directory / "azurite"
    data.mkdir()
    command = [
        "node",
        str(program),
        "--blobHost",
        "127.0.0.1",
        "--blobPort",
        str(port),
        "--location",
        str(data),
        "--silent",
        "--disableTelemetry",
        "--skipApiVersionCheck",
    ]
    endpoint = f"http://127.0.0.1:{port}/devstoreaccount1"
    with running(command, directory / "azurite.log", endpoint):
        yield AzureServer(endpoint)


@contextlib.contextmanager
def as_azure(server: AzureServer, directory: Path) -> Iterator[str]:
    """The endpoint of the same store as Azure has it, until the block ends: the account is in no path, and a listing
    may begin at a name. azurite ignores the parameter ``startFrom``.
    """
    port, behind = free_port(), urlsplit(server.endpoint).port
    program = str(Path(__file__).with_name("azure_front.py"))
    command = [sys.executable, "-P", program, str(port), str(behind), server.account]
    endpoint = f"http://127.0.0.1:{port}"
    with running(command, directory / "azure_front.log", endpoint):
        yield endpoint


def _program() -> Path:
    if not shutil.which("node"):
        raise NotAvailableError("azurite needs Node.js, which is not installed")
    place = Path(os.environ.get("SEGREADER_AZURITE") or _CACHE)
    program = place / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    if not program.exists():
        npm = shutil.which("npm")
        if npm is None:
            raise NotAvailableError("azurite comes from npm, which is not installed")
        place.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", "--prefix", str(place), "--no-fund", "--no-audit", "--silent", f"azurite@{VERSION}"]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=240)
        except (subprocess.SubprocessError, OSError) as error:
            raise NotAvailableError(f"npm could not fetch azurite: {error}") from error
    return program
