"""Who we are, told to a broker over SASL, at the beginning of a connection and again before its session ends (KIP-368).

Every refusal is an ``AuthenticationError`` at once: trying again with the same password locks accounts. No error shows
a password or token, even if the broker's own text does.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from segreader.broker import calls
from segreader.broker.apis import Api, choose_version
from segreader.broker.connection import Connection
from segreader.broker.error_codes import describe
from segreader.broker.messages import ApiVersions
from segreader.broker.sasl import SaslExchange, printable, start_exchange
from segreader.broker.settings import ClientSettings
from segreader.errors import AuthenticationError

_MOST_STEPS = 4
_SHORTEST_SESSION_MS = 1_000
_EARLIEST, _LATEST = 0.85, 0.95


def authenticate(
    connection: Connection,
    settings: ClientSettings,
    offered: ApiVersions,
    *,
    until_ms: int | None = None,
    choose: Callable[[float, float], float] = random.uniform,
) -> None:
    """Authenticate on a connection with nothing in flight, and have it done again before the session ends.

    Args:
        offered: the broker's versions.
        until_ms: when the operation must be over, on the connection's clock.
        choose: gives a number between two others: where in the session it is renewed.

    Raises:
        AuthenticationError: the broker refuses mechanism, user, password or token, or cannot prove itself (SCRAM).
        ConnectionFailedError: the broker closed the connection or was silent.
    """
    assert settings.sasl_mechanism is not None
    exchange = start_exchange(settings)
    try:
        _shake_hands(connection, settings, until_ms)
        lifetime_ms = _exchange(connection, settings, offered, exchange, until_ms)
    except AuthenticationError as error:
        connection.close()
        raise error.located(source=connection.peer) from None
    connection.renew_at_ms = None
    if lifetime_ms > 0:
        wait_ms = int(max(lifetime_ms, _SHORTEST_SESSION_MS) * choose(_EARLIEST, _LATEST))
        connection.renew_at_ms = connection.now_ms() + wait_ms

        def renew() -> None:
            over_ms = connection.now_ms() + settings.operation_timeout_ms
            authenticate(connection, settings, offered, until_ms=over_ms, choose=choose)

        connection.renew_session = renew


def _shake_hands(connection: Connection, settings: ClientSettings, until_ms: int | None) -> None:
    answer = connection.ask(calls.sasl_handshake(settings), until_ms=until_ms)
    if answer.error:
        raise AuthenticationError(
            f"the mechanism {settings.sasl_mechanism} is refused: {describe(answer.error)}",
            code=answer.error,
            expected=", ".join(printable(each) for each in answer.mechanisms[:10]) or None,
            hint="Set sasl.mechanism to one that this listener offers",
        )


def _exchange(
    connection: Connection,
    settings: ClientSettings,
    offered: ApiVersions,
    exchange: SaslExchange,
    until_ms: int | None,
) -> int:
    """The session's life in ms; 0: it has no end."""
    version = choose_version(Api.SASL_AUTHENTICATE, offered)
    # What is said stands in no variable here: whoever reports crashes prints those of every frame of a traceback.
    call = calls.sasl_authenticate(settings, version, exchange.first())
    for _ in range(_MOST_STEPS):
        answer = connection.ask(call, until_ms=until_ms)
        if answer.error:
            said = printable(answer.error_message)
            if exchange.is_secret_in(said):
                said = ""
            raise AuthenticationError(
                f"{_who(settings)} is refused with {settings.sasl_mechanism}: {describe(answer.error)}"
                + (f", {said}" if said else ""),
                code=answer.error,
                hint="Check user, password or token, and that this mechanism is set up for the user",
            )
        following = exchange.next(answer.data)
        if following is None:
            return answer.session_lifetime_ms
        call = calls.sasl_authenticate(settings, version, following)
    raise AuthenticationError(f"{settings.sasl_mechanism} does not come to an end with this broker")


def _who(settings: ClientSettings) -> str:
    return f"user {settings.sasl_username!r}" if settings.sasl_username else "the token"
