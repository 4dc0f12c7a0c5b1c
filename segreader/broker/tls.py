"""TLS to a broker: the context that settings ask for, and what to do when it fails, in words.

Certificates and host names are verified unless the settings say otherwise.
"""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

from segreader.broker.settings import ClientSettings
from segreader.errors import AuthenticationError, BrokerError, ConnectionFailedError, OptionError


def make_context(settings: ClientSettings) -> ssl.SSLContext:
    """A client's context: TLS 1.2 or later, certificates verified, the client's own one loaded.

    Raises:
        OptionError: a file is missing or is no PEM file, or the key's passphrase is wrong.
        AuthenticationError: these settings came from a pickle, which holds no secret.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = settings.verify and settings.verify_hostname
    context.verify_mode = ssl.CERT_REQUIRED if settings.verify else ssl.CERT_NONE
    if settings.verify:
        _trust(context, settings)
    if settings.certificate_file is not None:
        _load_own(context, settings)
    return context


def wrap(stream: socket.socket, context: ssl.SSLContext, host: str, peer: str) -> ssl.SSLSocket:
    """The stream with TLS on it; the handshake is done.

    Args:
        host: the name that the certificate must bear.
        peer: as errors are to name it.

    Raises:
        AuthenticationError: one side does not accept the other's certificate.
        ConnectionFailedError: the handshake failed, or took too long.
    """
    try:
        return context.wrap_socket(stream, server_hostname=host)
    except (OSError, ValueError) as error:
        raise failure(error, peer) from None


def failure(error: OSError | ValueError, peer: str) -> BrokerError:
    """What an error of the TLS layer means, with the next step."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if "hostname" in error.verify_message.lower() or "ip address" in error.verify_message.lower():
            hint = "Use a name in the certificate, or set ssl.endpoint.identification.algorithm to none"
        elif "expired" in error.verify_message.lower() or "not yet valid" in error.verify_message.lower():
            hint = "Renew the broker's certificate, or check this machine's clock"
        else:
            hint = "Set ssl.ca.location to the PEM file of the authority that signed the broker's certificate"
        return AuthenticationError(
            f"the broker's certificate is not accepted: {error.verify_message}", source=peer, hint=hint
        )
    if isinstance(error, ssl.SSLError):
        reason = error.reason or type(error).__name__
        if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"):
            return ConnectionFailedError(
                f"no TLS is spoken at this port ({reason})",
                source=peer,
                hint="Use the port of the TLS listener, or another security.protocol",
            )
        if is_refusal_of_certificate(error):
            return AuthenticationError(
                f"the broker does not accept our certificate ({reason})",
                source=peer,
                hint="Set ssl.certificate.location and ssl.key.location to a certificate that the broker trusts",
            )
        if "PROTOCOL_VERSION" in reason or "UNSUPPORTED_PROTOCOL" in reason:
            return ConnectionFailedError(
                f"no common version of TLS ({reason})", source=peer, hint="The broker must offer TLS 1.2 or 1.3"
            )
        return ConnectionFailedError(f"TLS failed: {reason}", source=peer)
    if isinstance(error, TimeoutError):
        return ConnectionFailedError(
            "timed out in the TLS handshake",
            source=peer,
            hint="A listener without TLS waits like this: check port and security.protocol",
        )
    if isinstance(error, OSError):
        return ConnectionFailedError(
            f"closed in the TLS handshake ({type(error).__name__})",
            source=peer,
            hint="A listener without TLS closes like this: check port and security.protocol",
        )
    return ConnectionFailedError("TLS cannot be used with this host name", source=peer)


def is_refusal_of_certificate(error: ssl.SSLError) -> bool:
    """Whether the other side's alert is about our certificate. With TLS 1.3 it comes with the first answer."""
    reason = error.reason or ""
    return "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason or "ACCESS_DENIED" in reason)


def _trust(context: ssl.SSLContext, settings: ClientSettings) -> None:
    try:
        if settings.ca_data is not None:
            context.load_verify_locations(cadata=settings.ca_data)
        if settings.ca_file is not None:
            place = Path(settings.ca_file)
            context.load_verify_locations(
                cafile=None if place.is_dir() else str(place), capath=str(place) if place.is_dir() else None
            )
    except (OSError, ValueError) as error:
        raise OptionError(
            "the certificates to trust cannot be loaded"
            + (f" from {settings.ca_file}" if settings.ca_file is not None and settings.ca_data is None else ""),
            found=_reason(error),
            expected="PEM",
            hint="A JKS or PKCS12 trust store must be converted, as with keytool -exportcert -rfc",
        ) from None
    if settings.ca_data is None and settings.ca_file is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)


def _load_own(context: ssl.SSLContext, settings: ClientSettings) -> None:
    assert settings.certificate_file is not None
    if settings.key_password is None:
        settings.require_secrets()
    # Without a function OpenSSL would ask for the passphrase at the terminal.
    secret = settings.key_password
    try:
        context.load_cert_chain(
            settings.certificate_file,
            settings.key_file,
            password=lambda: "" if secret is None else secret.reveal(),
        )
    except (OSError, ValueError) as error:
        raise OptionError(
            f"our certificate and key cannot be loaded from {settings.certificate_file}",
            found=_reason(error),
            expected="PEM",
            hint="Is the key in the same file, or in ssl.key.location, and is ssl.key.password its passphrase?",
        ) from None


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or type(error).__name__
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
