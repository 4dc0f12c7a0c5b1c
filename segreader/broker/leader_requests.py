"""ListOffsets and OffsetForLeaderEpoch, which only leaders answer: sent to all of them at once.

A request names each partition once; several questions about one partition are several requests on one connection, sent
before the first answer is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, Protocol, TypeVar

from segreader.broker import api
from segreader.broker.connection import Call, Pending
from segreader.broker.error_codes import ErrorCode, describe, makes_metadata_stale, name_of
from segreader.broker.handshake import OpenConnection
from segreader.broker.messages import ApiVersions, EpochEnd, EpochWanted, ListedOffset, OffsetWanted
from segreader.broker.network_client import NetworkClient
from segreader.broker.rules.backoff import Backoff, Deadline
from segreader.broker.rules.fetch_errors import REPEATS_OF_SERVER_ERRORS
from segreader.broker.rules.list_offsets import Look, OffsetLookup
from segreader.errors import AuthorizationError, BrokerError, ConnectionFailedError, ProtocolError
from segreader.isolation import IsolationLevel


class _AboutPartition(Protocol):
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...


Wanted = TypeVar("Wanted", bound=_AboutPartition)
Told = TypeVar("Told", bound=_AboutPartition)
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Reply(Generic[Wanted, Told]):
    """A leader's response to one request: ``told`` is ``None`` if none could be asked or its connection failed."""

    wanted: Wanted
    told: Told | None
    version: int = -1
    failure: ConnectionFailedError | None = None


@dataclass(slots=True)
class _Sent(Generic[Wanted, Answer]):
    lent: OpenConnection
    requests: list[tuple[tuple[Wanted, ...], Pending[Answer]]]


def list_offsets(
    client: NetworkClient, wanted: Sequence[OffsetWanted], isolation_level: IsolationLevel
) -> tuple[ListedOffset, ...]:
    """Offsets in the order of the questions; see ``BrokerClient.list_offsets``."""
    deadline = client.deadline()
    client.require_topics([each.topic for each in wanted], deadline)
    lookup = OffsetLookup(
        wanted, isolation_level, latest=client.latest_told, jitter=client.jitter, policy=client.backoff_policy
    )

    def make(offered: ApiVersions, some: Sequence[OffsetWanted]) -> Call[Sequence[ListedOffset]]:
        call = api.list_offsets(client.settings, offered, [_fenced(client, each) for each in some], isolation_level)
        return _parts(call, lambda answer: answer.offsets, lambda answer: answer.throttle_ms)

    failure: ConnectionFailedError | None = None
    while True:
        for reply in ask_leaders(client, lookup.requests(), make, deadline):
            if reply.told is None:
                failure = reply.failure or failure
                lookup.not_answered()
                continue
            if reply.told.error:
                client.metrics.errors[name_of(reply.told.error)] += 1
            lookup.answered(reply.wanted, reply.told, version=reply.version)
        step = lookup.next_step()
        if step.look is Look.DONE:
            return lookup.results()
        client.metrics.retries["ListOffsets"] += 1
        stale = [each.topic for each in wanted] if step.look is Look.REFRESH_THEN_ASK else []
        if not client.wait_to_repeat(step.wait_ms, deadline, stale):
            raise _with_cause(lookup.timed_out(), failure)


def epoch_ends(client: NetworkClient, wanted: Sequence[EpochWanted]) -> tuple[EpochEnd, ...]:
    """Ends in the order of the questions; see ``BrokerClient.epoch_ends``."""
    deadline = client.deadline()
    client.require_topics([each.topic for each in wanted], deadline)
    found: dict[tuple[str, int, int], EpochEnd] = {}
    backoff = Backoff(client.jitter, client.backoff_policy)
    server_errors = 0
    failure: ConnectionFailedError | None = None

    def make(offered: ApiVersions, some: Sequence[EpochWanted]) -> Call[Sequence[EpochEnd]]:
        return _epoch_call(client, offered, [_fenced(client, each) for each in some])

    while True:
        last: EpochEnd | None = None
        is_stale = False
        left = [each for each in wanted if _epoch_key(each) not in found]
        for reply in ask_leaders(client, _rounds(left), make, deadline):
            told = reply.told
            if told is None:
                is_stale, failure = True, reply.failure or failure
            elif told.error == ErrorCode.NONE:
                found[_epoch_key(reply.wanted)] = told
            else:
                last = told
                client.metrics.errors[name_of(told.error)] += 1
                _refuse_forbidden(told.topic, told.error)
                server_errors += told.error == ErrorCode.UNKNOWN_SERVER_ERROR
                is_stale = is_stale or makes_metadata_stale(told.error) or told.error == ErrorCode.OFFSET_NOT_AVAILABLE
        if all(_epoch_key(each) in found for each in wanted):
            return tuple(found[_epoch_key(each)] for each in wanted)
        client.metrics.retries["OffsetForLeaderEpoch"] += 1
        stale = [each.topic for each in wanted] if is_stale else []
        is_hopeless = server_errors > REPEATS_OF_SERVER_ERRORS
        if is_hopeless or not client.wait_to_repeat(backoff.failed(), deadline, stale):
            about = f" for {last.topic}-{last.partition}: {describe(last.error)}" if last is not None else ""
            error = BrokerError(
                f"OffsetForLeaderEpoch had no answer in time{about}", code=last.error if last is not None else None
            )
            raise _with_cause(error, failure)


def _with_cause(error: BrokerError, failure: ConnectionFailedError | None) -> BrokerError:
    """The error with the last failure of a connection, if no broker's own answer says more."""
    if error.code is not None or failure is None:
        return error
    return error.located(found=f"{failure.source}: {failure.message}", hint=failure.hint)


def ask_epoch_end(client: NetworkClient, wanted: EpochWanted, deadline: Deadline) -> EpochEnd | None:
    """What the leader says now, errors included; ``None`` where it could not be asked. No tries, no waits."""

    def make(offered: ApiVersions, some: Sequence[EpochWanted]) -> Call[Sequence[EpochEnd]]:
        return _epoch_call(client, offered, some)

    return next(reply.told for reply in ask_leaders(client, [[wanted]], make, deadline))


def ask_leaders(
    client: NetworkClient,
    rounds: Sequence[Sequence[Wanted]],
    make: Callable[[ApiVersions, Sequence[Wanted]], Call[Sequence[Told]]],
    deadline: Deadline,
) -> Iterator[Reply[Wanted, Told]]:
    """Each question with its leader's answer; all requests are sent before the first answer is read.

    Args:
        rounds: questions, each partition once in each.
        make: the request for some questions, read as one answer for each.

    Raises:
        AuthenticationError, UnsupportedVersionError: a leader refuses us or is too old.
        ProtocolError: an answer lacks a partition, or has one that was not asked about.
    """
    by_leader: dict[int, list[list[Wanted]]] = {}
    for number, each_round in enumerate(rounds):
        for each in each_round:
            leader_id = client.cluster.leader(each.topic, each.partition).leader_id
            if leader_id < 0:
                yield Reply(each, None)
                continue
            requests = by_leader.setdefault(leader_id, [])
            requests.extend([] for _ in range(number + 1 - len(requests)))
            requests[number].append(each)
    sent: list[_Sent[Wanted, Sequence[Told]]] = []
    try:
        for leader_id, requests in by_leader.items():
            asked = [tuple(each) for each in requests if each]
            try:
                lent = client.connections.lend(leader_id, deadline.at_ms)
            except ConnectionFailedError as error:
                yield from [Reply(each, None, failure=error) for some in asked for each in some]
                continue
            of_leader: _Sent[Wanted, Sequence[Told]] = _Sent(lent, [])
            sent.append(of_leader)
            for some in asked:
                call = lent.plan(partial(_about, make, some))
                try:
                    of_leader.requests.append((some, lent.connection.send(call, until_ms=deadline.at_ms)))
                except ConnectionFailedError as error:
                    yield from [Reply(each, None, failure=error) for each in some]
        for of_leader in sent:
            for some, pending in of_leader.requests:
                try:
                    told = of_leader.lent.connection.receive(pending, until_ms=deadline.at_ms)
                except ConnectionFailedError as error:
                    yield from [Reply(each, None, failure=error) for each in some]
                    continue
                yield from _matched(some, told, pending.call, of_leader.lent)
    finally:
        for of_leader in sent:
            client.connections.give_back(of_leader.lent)


def _about(
    make: Callable[[ApiVersions, Sequence[Wanted]], Call[Sequence[Told]]], some: Sequence[Wanted], offered: ApiVersions
) -> Call[Sequence[Told]]:
    return make(offered, some)


def _matched(
    asked: Sequence[Wanted], told: Sequence[Told], call: Call[Sequence[Told]], lent: OpenConnection
) -> Iterator[Reply[Wanted, Told]]:
    by_place = {(each.topic, each.partition): each for each in told}
    wanted = {(each.topic, each.partition) for each in asked}
    if len(by_place) != len(told) or by_place.keys() != wanted:
        lent.connection.close()
        raise ProtocolError(
            f"the answer to {call} is not about the partitions that were asked about",
            source=str(lent.address),
            found=f"{len(told)} partitions, {len(wanted & by_place.keys())} of them asked about",
            expected=len(wanted),
        )
    yield from (Reply(each, by_place[each.topic, each.partition], call.version) for each in asked)


def _epoch_call(client: NetworkClient, offered: ApiVersions, some: Sequence[EpochWanted]) -> Call[Sequence[EpochEnd]]:
    call = api.epoch_ends(client.settings, offered, some)
    return _parts(call, lambda answer: answer.ends, lambda answer: answer.throttle_ms)


class _Throttled(tuple[Told, ...], Generic[Told]):
    """Parts of an answer that keep its throttle time, which the connection looks for."""

    throttle_ms: int


def _parts(
    call: Call[Answer], parts: Callable[[Answer], Sequence[Told]], throttle_ms: Callable[[Answer], int]
) -> Call[Sequence[Told]]:
    def decode(frame: memoryview) -> Sequence[Told]:
        answer = call.decode(frame)
        found = _Throttled(parts(answer))
        found.throttle_ms = throttle_ms(answer)
        return found

    return Call(call.name, call.version, call.encode, decode, call.held_ms, call.answer_bytes)


def _fenced(client: NetworkClient, wanted: OffsetOrEpoch) -> OffsetOrEpoch:
    """The question with the newest epoch known: a leader that is none any more refuses it."""
    known = client.cluster.leader(wanted.topic, wanted.partition).leader_epoch
    return wanted if known <= wanted.current_leader_epoch else replace(wanted, current_leader_epoch=known)


OffsetOrEpoch = TypeVar("OffsetOrEpoch", OffsetWanted, EpochWanted)


def _rounds(wanted: Sequence[EpochWanted]) -> list[list[EpochWanted]]:
    rounds: list[dict[tuple[str, int], EpochWanted]] = []
    for each in dict.fromkeys(wanted):
        place = (each.topic, each.partition)
        free = next((one for one in rounds if place not in one), None)
        if free is None:
            rounds.append(free := {})
        free[place] = each
    return [list(one.values()) for one in rounds]


def _epoch_key(wanted: EpochWanted) -> tuple[str, int, int]:
    return (wanted.topic, wanted.partition, wanted.leader_epoch)


def _refuse_forbidden(topic: str, error: int) -> None:
    if error == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        raise AuthorizationError(f"no right to DESCRIBE topic {topic}", code=error)
