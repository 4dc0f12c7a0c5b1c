"""What a consumer group has committed: read only, without becoming a member."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from segreader.broker import calls
from segreader.broker.error_codes import ErrorCode, describe, is_retriable, name_of
from segreader.broker.messages import CommittedOffsets, Coordinator
from segreader.broker.rules.backoff import Backoff, Deadline
from segreader.errors import AuthorizationError, BrokerError, ConnectionFailedError

if TYPE_CHECKING:
    from segreader.broker.client import BrokerClient

_FIND_AGAIN = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})


def committed_offsets(client: BrokerClient, group: str, topics: Mapping[str, Sequence[int]] | None) -> CommittedOffsets:
    """The group's offsets; see ``BrokerClient.committed_offsets``."""
    deadline = client.deadline()
    backoff = Backoff(client.jitter, client.backoff_policy)
    coordinator: Coordinator | None = None
    while True:
        failed: ConnectionFailedError | None = None
        if coordinator is None:
            coordinator = _find(client, group, deadline, backoff)
        error = 0
        try:
            assert coordinator.node is not None
            lent = client.connections.lend_to(coordinator.node, deadline.at_ms)
            try:
                call = lent.plan(lambda offered: calls.offset_fetch(client.settings, offered, group, topics))
                answer = lent.connection.ask(call, until_ms=deadline.at_ms)
            finally:
                client.connections.give_back(lent)
            error = _worst(answer)
            if answer.group != group:
                raise BrokerError("OffsetFetch was answered for another group", source=str(lent.address))
            if error in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
                return answer
        except ConnectionFailedError as failure:
            coordinator, failed = None, failure
        if error:
            client.metrics.errors[name_of(error)] += 1
            _raise_final(error, group, "OffsetFetch")
            if error in _FIND_AGAIN:
                coordinator = None
        _wait(client, deadline, backoff, "OffsetFetch", group, error, failed)


def _find(client: BrokerClient, group: str, deadline: Deadline, backoff: Backoff) -> Coordinator:
    while True:
        coordinator = client.ask_any(
            lambda offered: calls.find_coordinator(client.settings, offered, group), deadline=deadline
        )
        if coordinator.error == ErrorCode.NONE and coordinator.node is not None and coordinator.group == group:
            return coordinator
        if coordinator.error:
            client.metrics.errors[name_of(coordinator.error)] += 1
            _raise_final(coordinator.error, group, "FindCoordinator")
        _wait(client, deadline, backoff, "FindCoordinator", group, coordinator.error, None)


def _wait(
    client: BrokerClient,
    deadline: Deadline,
    backoff: Backoff,
    api: str,
    group: str,
    error: int,
    failed: ConnectionFailedError | None,
) -> None:
    client.metrics.retries[api] += 1
    wait_ms = backoff.failed()
    if not deadline.allows(wait_ms, client.now_ms()):
        if failed is not None:
            raise failed
        raise BrokerError(f"{api} had no answer in time for group {group}: {describe(error)}", code=error)
    client.wait(wait_ms)


def _worst(answer: CommittedOffsets) -> int:
    """The group's error, or one of a partition that concerns the whole answer."""
    if answer.error:
        return answer.error
    codes = {each.error for each in answer.offsets}
    for code in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNSTABLE_OFFSET_COMMIT):
        if code in codes:
            return code
    return 0


def _raise_final(error: int, group: str, api: str) -> None:
    if error in (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
        raise AuthorizationError(f"no right to DESCRIBE group {group}", code=error)
    if error == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        raise AuthorizationError(f"no right to DESCRIBE a topic of group {group}", code=error)
    if not is_retriable(error):
        raise BrokerError(f"{api} failed for group {group}: {describe(error)}", code=error)
