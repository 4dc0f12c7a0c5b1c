"""The APIs of Kafka 4.3 that clients use, by key. Source: ``ApiKeys`` (4.3).

The others are spoken between brokers and controllers, or carry addresses of controllers (DescribeQuorum), which have
none at a gateway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_RUNS = (
    (0, "Produce Fetch ListOffsets Metadata"),
    (8, "OffsetCommit OffsetFetch FindCoordinator JoinGroup Heartbeat LeaveGroup SyncGroup DescribeGroups ListGroups"),
    (17, "SaslHandshake ApiVersions CreateTopics DeleteTopics DeleteRecords InitProducerId OffsetForLeaderEpoch"),
    (24, "AddPartitionsToTxn AddOffsetsToTxn EndTxn WriteTxnMarkers TxnOffsetCommit DescribeAcls CreateAcls"),
    (31, "DeleteAcls DescribeConfigs AlterConfigs AlterReplicaLogDirs DescribeLogDirs SaslAuthenticate"),
    (37, "CreatePartitions CreateDelegationToken RenewDelegationToken ExpireDelegationToken DescribeDelegationToken"),
    (42, "DeleteGroups ElectLeaders IncrementalAlterConfigs AlterPartitionReassignments ListPartitionReassignments"),
    (47, "OffsetDelete DescribeClientQuotas AlterClientQuotas DescribeUserScramCredentials AlterUserScramCredentials"),
    (57, "UpdateFeatures"),
    (60, "DescribeCluster DescribeProducers"),
    (64, "UnregisterBroker DescribeTransactions ListTransactions"),
    (68, "ConsumerGroupHeartbeat ConsumerGroupDescribe"),
    (71, "GetTelemetrySubscriptions PushTelemetry"),
    (74, "ListConfigResources DescribeTopicPartitions ShareGroupHeartbeat ShareGroupDescribe ShareFetch"),
    (79, "ShareAcknowledge AddRaftVoter RemoveRaftVoter"),
    (83, "InitializeShareGroupState ReadShareGroupState WriteShareGroupState DeleteShareGroupState"),
    (87, "ReadShareGroupStateSummary StreamsGroupHeartbeat StreamsGroupDescribe DescribeShareGroupOffsets"),
    (91, "AlterShareGroupOffsets DeleteShareGroupOffsets"),
)

API_NAMES: Final[Mapping[int, str]] = {
    first + number: name for first, names in _RUNS for number, name in enumerate(names.split())
}
"""Key -> name as Kafka writes it."""
