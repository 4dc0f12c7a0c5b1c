"""Three nodes in three racks, with every kind of listener, and patience for seconds only.

Node 1 is the only controller and keeps what Kafka writes for itself, so nodes 2 and 3 may be frozen, stopped and
killed while all else goes on. Who comes by the plain listener may do everything; others what they were allowed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kafka_kit.certificates import Certificates, make_certificates
from kafka_kit.cluster import Cluster, cluster
from kafka_kit.leaders import Leaders
from kafka_kit.rights import BEARER_JAAS, SCRAM_JAAS, Rights, User, plain_jaas

RACKS = {1: "a", 2: "b", 3: "c"}
READER = User("reader", "c4nary-reader-Pa55word")
"""Allowed to read what a test lets it."""
STRANGER = User("stranger", "c4nary-stranger-Pa55word")
"""Never allowed anything."""
WRITER = User("writer", "c4nary-writer-Pa55word")
"""A superuser behind a password."""
USERS = (READER, STRANGER, WRITER)
LISTENERS = ("SASL_PLAINTEXT", "SSL", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""By password; OAUTHBEARER is taken, too, with any token."""

LAG_MS = 4000
"""How long a frozen replica counts as in sync, if its session has not ended before."""
SESSION_MS = 6000
"""How long a frozen broker counts as alive."""


@dataclass(frozen=True, slots=True)
class Racks:
    """The running cluster, and what is done to it."""

    cluster: Cluster
    certificates: Certificates
    leaders: Leaders
    rights: Rights

    @property
    def bootstrap(self) -> str:
        """For clients that may do everything."""
        return self.cluster.bootstrap

    @property
    def steady(self) -> str:
        """The same for clients that must not begin at a node which may be frozen."""
        return f"127.0.0.1:{self.cluster.node(1).config.port}"


@contextlib.contextmanager
def racks(directory: Path) -> Iterator[Racks]:
    """The cluster, until the block ends.

    Raises:
        NotAvailableError: the programs cannot be had on this machine.
    """
    certificates = make_certificates(directory / "certificates")
    with cluster(
        directory / "cluster",
        nodes=3,
        controllers=1,
        replication=1,
        listeners=LISTENERS,
        settings=_settings(certificates),
        node_settings={number: {"broker.rack": rack} for number, rack in RACKS.items()},
    ) as running:
        leaders, rights = Leaders(running), Rights(running)
        leaders.keep_on("__remote_log_metadata", 1)
        for name in ("__consumer_offsets", "__transaction_state"):
            wanted = {"assignments": {0: [1]}, "configs": {"cleanup.policy": "compact"}}
            running.admin.create_topics({name: wanted}, wait_for_metadata=True)
        rights.let_log_in(*USERS)
        yield Racks(running, certificates, leaders, rights)


def _settings(certificates: Certificates) -> dict[str, str]:
    found = {
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "replica.lag.time.max.ms": str(LAG_MS),
        "replica.fetch.wait.max.ms": "100",
        "broker.session.timeout.ms": str(SESSION_MS),
        "broker.heartbeat.interval.ms": "500",
        "leader.imbalance.check.interval.seconds": "100000",  # leaders stay where a test has put them
        "controlled.shutdown.max.retries": "1",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:{WRITER.name}",
        "sasl.enabled.mechanisms": ",".join((*MECHANISMS, "OAUTHBEARER")),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.broker),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.authority),
        "ssl.client.auth": "requested",
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        for mechanism in (*MECHANISMS, "OAUTHBEARER"):
            jaas = {"PLAIN": plain_jaas(USERS), "OAUTHBEARER": BEARER_JAAS}.get(mechanism, SCRAM_JAAS)
            found[f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"] = jaas
    return found
