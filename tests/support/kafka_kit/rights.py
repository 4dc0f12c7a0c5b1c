"""Who may do what: users with passwords, and what they are allowed, given and taken away while the cluster runs."""

from __future__ import annotations

import base64
import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    UserScramCredentialUpsertion,
)
from kafka_kit.cluster import Cluster

SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who logs in; nobody but a superuser may do anything before it was allowed."""

    name: str
    password: str = field(repr=False)


def plain_jaas(users: tuple[User, ...]) -> str:
    """The line that tells a broker who may log in by PLAIN."""
    known = " ".join(f'user_{user.name}="{user.password}"' for user in users)
    return f"org.apache.kafka.common.security.plain.PlainLoginModule required {known};"


SCRAM_JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required;"

BEARER_JAAS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
    ' unsecuredLoginStringClaim_sub="broker";'
)
"""The line for OAUTHBEARER: a broker takes any token as true, signed or not."""


def bearer_token(name: str, lives_s: int = 3600) -> str:
    """A token that nobody signed, as the broker's own validator for tests takes it."""
    now = int(time.time())
    parts = ({"alg": "none"}, {"sub": name, "iat": now - 10, "exp": now + lives_s})
    return ".".join(base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in parts) + "."


class Rights:
    """The users and their rights in a cluster, whose plain listener is open to superusers."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def let_log_in(self, *users: User) -> None:
        """Give users their passwords for SCRAM; returns when a broker knows them."""
        for kind in SCRAM:  # a user may be in a request once
            fresh = [UserScramCredentialUpsertion(one.name, kind, one.password) for one in users]
            answers = self._cluster.admin.alter_user_scram_credentials(fresh)
            if refused := [text for text in answers.values() if text is not None]:
                raise RuntimeError(f"no credentials: {refused}")
        self._cluster.wait_until(lambda: self._know(users), 30.0, "the brokers do not know the users")

    def allow(self, user: User, operation: str, resource: str, *, kind: str = "TOPIC", is_prefix: bool = False) -> None:
        """Allow something, ``"READ"`` of a topic; returns when the brokers go by it."""
        pattern = ACLResourcePatternType.PREFIXED if is_prefix else ACLResourcePatternType.LITERAL
        where = ResourcePattern(ResourceType[kind], resource, pattern)
        one = ACL(f"User:{user.name}", "*", ACLOperation[operation], ACLPermissionType.ALLOW, where)
        if failed := self._cluster.admin.create_acls([one])["failed"]:
            raise RuntimeError(f"{one}: {failed}")
        self._cluster.wait_until(lambda: all(self._known(user, resource, kind)), 30.0, f"{one} is not known")

    def take_away(self, user: User, resource: str, *, kind: str = "TOPIC") -> None:
        """Take back what was allowed of a resource."""
        self._cluster.admin.delete_acls([_all_of(user, resource, kind)])
        self._cluster.wait_until(lambda: not any(self._known(user, resource, kind)), 30.0, "an ACL is still there")

    @contextlib.contextmanager
    def allowed(self, user: User, operation: str, resource: str, *, kind: str = "TOPIC") -> Iterator[None]:
        """Allow it until the block ends."""
        self.allow(user, operation, resource, kind=kind)
        try:
            yield
        finally:
            self.take_away(user, resource, kind=kind)

    def _known(self, user: User, resource: str, kind: str) -> list[bool]:
        """For each broker, whether it knows that something is allowed."""
        wanted = _all_of(user, resource, kind)
        return [bool(admin.describe_acls(wanted)[0]) for admin in self._cluster.each_asked()]

    def _know(self, users: tuple[User, ...]) -> bool:
        names = [one.name for one in users]
        told = [admin.describe_user_scram_credentials(names) for admin in self._cluster.each_asked()]
        return all(len(one["credential_infos"]) == len(SCRAM) for found in told for one in found.values())


def _all_of(user: User, resource: str, kind: str) -> ACLFilter:
    where = ResourcePatternFilter(ResourceType[kind], resource, ACLResourcePatternType.ANY)
    return ACLFilter(f"User:{user.name}", "*", ACLOperation.ANY, ACLPermissionType.ANY, where)
