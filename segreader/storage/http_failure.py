"""What urllib3's, http.client's and the system's exceptions mean. Their own texts hold the URL; none of it is kept."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator

from urllib3.exceptions import (
    ConnectTimeoutError,
    InvalidHeader,
    LocationValueError,
    NameResolutionError,
    ReadTimeoutError,
)

from segreader.errors import StorageError, WrongAnswerError
from segreader.storage.exchange import Exchange
from segreader.storage.retry import Remedy, RequestFailed


def transport_failure(error: Exception, exchange: Exchange, source: str) -> RequestFailed:
    """What an exception of the transport means, and what may help.

    Args:
        exchange: the request that ended so.
        source: the object, as it may be shown.
    """
    if isinstance(exchange.refusal, StorageError):
        return RequestFailed(exchange.refusal.located(source=source), Remedy.NONE)
    chain = list(causes(error))

    def among(*kinds: type[BaseException]) -> BaseException | None:
        return next((cause for cause in chain if isinstance(cause, kinds)), None)

    def failed(message: str, hint: str, remedy: Remedy = Remedy.RETRY, found: str | None = None) -> RequestFailed:
        return RequestFailed(StorageError(message, source=source, found=found, hint=hint), remedy)

    if untrusted := among(ssl.SSLCertVerificationError, ssl.CertificateError):
        return failed(
            "the server's certificate is not trusted",
            "Name the CA with ca_file, or ask the host by the name in its certificate",
            Remedy.NONE,
            getattr(untrusted, "verify_message", "") or None,
        )
    if among(LocationValueError, http.client.InvalidURL) or type(error) is ValueError:
        return failed("not a URL that can be asked", "See its host, port and characters", Remedy.NONE)
    if not among(http.client.RemoteDisconnected) and (garbage := among(http.client.HTTPException, InvalidHeader)):
        wrong = WrongAnswerError(
            "the answer is not HTTP that can be read",
            source=source,
            found=type(garbage).__name__,
            hint="Is it a proxy?",
        )
        return RequestFailed(wrong, Remedy.NONE)
    if among(NameResolutionError):
        return failed("the host's name cannot be resolved", "See the name, and this machine's DNS")
    if among(ConnectTimeoutError):
        return failed("no connection could be made in time", "See the host, the port, the network and the proxy")
    if exchange.is_ended or among(ReadTimeoutError, TimeoutError):
        return failed("no answer came in time", "See the store's status")
    reason = next((c.strerror for c in chain if isinstance(c, OSError) and c.strerror and c.errno), None)
    return failed("the connection broke", "See the network and the proxy", found=reason)


def causes(error: BaseException) -> Iterator[BaseException]:
    """An exception and those that it holds, or that led to it."""
    ahead, seen = [error], set[int]()
    while ahead:
        one = ahead.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        ahead += [arg for arg in one.args if isinstance(arg, BaseException)]
        ahead += [held for held in (one.__cause__, one.__context__) if held is not None]
