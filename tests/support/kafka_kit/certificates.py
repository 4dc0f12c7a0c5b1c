"""An authority for the time of the tests: what a broker shows, what its clients trust, who a client is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files.

    Args:
        authority: what clients trust.
        broker: key and certificate of 127.0.0.1, as Java reads them.
        client: key and certificate of a client.
        stranger: an authority that signed none of them.
    """

    authority: Path
    broker: Path
    client: Path
    stranger: Path


def make_certificates(directory: Path) -> Certificates:
    """Fresh ones, in files of that directory."""
    directory.mkdir(parents=True, exist_ok=True)
    ours = trustme.CA()
    made = Certificates(*(directory / f"{name}.pem" for name in ("authority", "broker", "client", "stranger")))
    ours.cert_pem.write_to_path(made.authority)
    trustme.CA().cert_pem.write_to_path(made.stranger)
    _write(ours.issue_cert("127.0.0.1", "localhost"), made.broker)
    _write(ours.issue_cert("client@segreader.example", common_name="client"), made.client)
    return made


def _write(leaf: trustme.LeafCert, place: Path) -> None:
    """Java takes keys as PKCS #8 only."""
    key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
    parts = [key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())]
    parts += [blob.bytes() for blob in leaf.cert_chain_pems]
    place.write_bytes(b"".join(parts))
    place.chmod(0o600)
