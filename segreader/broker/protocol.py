"""The Kafka protocol in tables: APIs and the versions spoken here, the fields of their messages, and error codes.

Tiered storage left early access in Kafka 3.9, so versions that no broker from then on needs are not spoken; Fetch 12
is, for it is the last one with topic names. Fetch ends with 18: KIP-1248 wanted that number, and Kafka 4.1 gave it to
KIP-1166.

In a table of fields a line is ``Name type versions``: ``[]`` makes an array, ``?`` a value that may be null (``?12+``:
from version 12 on; as a number null is -1), ``tag 0`` a tagged field, ``= -1`` the value in a version without the
field. Fields of a ``struct`` follow, further to the right. A field without versions is in all that ``SUPPORTED`` lists.
Tagged fields that nothing here reads are left out: they are kept as unknown ones.

Source: the message schemas, ``ApiKeys`` and ``Errors`` of Apache Kafka 4.3, and the classes of the Java client behind
errors (``RetriableException``, ``InvalidMetadataException``).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from segreader.broker.messages import ApiVersionRange, ApiVersions
from segreader.errors import UnsupportedVersionError


class Api(IntEnum):
    """An API's key: those that a reader asks, and those whose answers carry addresses of brokers."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_CONFIGS = 32
    SASL_AUTHENTICATE = 36
    DESCRIBE_QUORUM = 55
    DESCRIBE_CLUSTER = 60
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79

    @property
    def label(self) -> str:
        """The name as Kafka writes it."""
        return self.name.title().replace("_", "")


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
"""Key -> name as Kafka writes it: the APIs of Kafka 4.3 that clients use. Source: ``ApiKeys`` (4.3).

The others run between brokers and controllers, or carry addresses of controllers (DescribeQuorum), which have none at a
gateway.
"""


SUPPORTED: Final[dict[Api, ApiVersionRange]] = {
    Api.FETCH: ApiVersionRange(12, 18),
    Api.LIST_OFFSETS: ApiVersionRange(6, 11),
    Api.METADATA: ApiVersionRange(9, 13),
    Api.OFFSET_FETCH: ApiVersionRange(8, 9),
    Api.FIND_COORDINATOR: ApiVersionRange(4, 4),
    Api.SASL_HANDSHAKE: ApiVersionRange(1, 1),
    Api.API_VERSIONS: ApiVersionRange(0, 4),
    Api.OFFSET_FOR_LEADER_EPOCH: ApiVersionRange(4, 4),
    Api.DESCRIBE_CONFIGS: ApiVersionRange(4, 4),
    Api.SASL_AUTHENTICATE: ApiVersionRange(0, 2),
}
"""Versions that a reader asks with. ApiVersions 3 is asked first, and 0 where that is not known."""

LARGEST_ANSWER: Final = 32 << 20
"""Bytes of an answer that is none to Fetch: Metadata of half a million partitions has fewer."""

LARGEST_EARLY_ANSWER: Final = 1 << 20
"""Bytes of an answer before the peer has shown who it is; the same for FindCoordinator, which is as small."""

_EARLY: Final = frozenset({Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE, Api.FIND_COORDINATOR})

FLEXIBLE_FROM: Final[dict[Api, int]] = {
    Api.PRODUCE: 9,
    Api.FETCH: 12,
    Api.LIST_OFFSETS: 6,
    Api.METADATA: 9,
    Api.OFFSET_FETCH: 6,
    Api.FIND_COORDINATOR: 3,
    Api.API_VERSIONS: 3,
    Api.OFFSET_FOR_LEADER_EPOCH: 4,
    Api.DESCRIBE_CONFIGS: 4,
    Api.SASL_AUTHENTICATE: 2,
    Api.DESCRIBE_QUORUM: 0,
    Api.DESCRIBE_CLUSTER: 0,
    Api.SHARE_FETCH: 0,
    Api.SHARE_ACKNOWLEDGE: 0,
}
"""The version from which on an API has compact lengths and tagged fields (KIP-482). SaslHandshake never has."""


def largest_answer(api: Api) -> int | None:
    """Bytes above which an answer is refused before it is read; ``None`` for Fetch, which says itself what it wants."""
    if api is Api.FETCH:
        return None
    return LARGEST_EARLY_ANSWER if api in _EARLY else LARGEST_ANSWER


def choose_version(api: Api, offered: ApiVersions, *, at_most: int | None = None) -> int:
    """The newest version of an API that both sides speak.

    Args:
        at_most: what the request itself needs, within what is spoken here.

    Raises:
        UnsupportedVersionError: there is none; it names the API and what each side speaks.
    """
    ours = SUPPORTED[api]
    first, last = ours.first, ours.last if at_most is None else min(ours.last, at_most)
    theirs = offered.ranges.get(api)
    if theirs is not None and max(first, theirs.first) <= min(last, theirs.last):
        return min(last, theirs.last)
    raise UnsupportedVersionError(
        f"the broker does not speak a version of {api.label} that is needed",
        found="none at all" if theirs is None else f"versions {theirs.first} to {theirs.last}",
        expected=f"one of {first} to {last}",
        hint="Brokers from Kafka 3.9 on are supported",
    )


REQUESTS: Final = {
    Api.FETCH: """
        ReplicaId int32 0-14
        MaxWaitMs int32
        MinBytes int32
        MaxBytes int32
        IsolationLevel int8
        SessionId int32
        SessionEpoch int32
        Topics []struct
          Topic string 0-12
          TopicId uuid 13+
          Partitions []struct
            Partition int32
            CurrentLeaderEpoch int32
            FetchOffset int64
            LastFetchedEpoch int32
            LogStartOffset int64
            PartitionMaxBytes int32
        ForgottenTopicsData []struct
          Topic string 0-12
          TopicId uuid 13+
          Partitions []int32
        RackId string
    """,
    Api.LIST_OFFSETS: """
        ReplicaId int32
        IsolationLevel int8 2+
        Topics []struct
          Name string
          Partitions []struct
            PartitionIndex int32
            CurrentLeaderEpoch int32 4+
            Timestamp int64
        TimeoutMs int32 10+
    """,
    Api.METADATA: """
        Topics []struct?
          TopicId uuid 10+
          Name string?10+
        AllowAutoTopicCreation bool
        IncludeClusterAuthorizedOperations bool 8-10
        IncludeTopicAuthorizedOperations bool
    """,
    Api.OFFSET_FETCH: """
        Groups []struct
          GroupId string
          MemberId string? 9+
          MemberEpoch int32 9+
          Topics []struct?
            Name string
            PartitionIndexes []int32
        RequireStable bool
    """,
    Api.FIND_COORDINATOR: """
        KeyType int8
        CoordinatorKeys []string
    """,
    Api.SASL_HANDSHAKE: """
        Mechanism string
    """,
    Api.API_VERSIONS: """
        ClientSoftwareName string 3+
        ClientSoftwareVersion string 3+
    """,
    Api.OFFSET_FOR_LEADER_EPOCH: """
        ReplicaId int32
        Topics []struct
          Topic string
          Partitions []struct
            Partition int32
            CurrentLeaderEpoch int32
            LeaderEpoch int32
    """,
    Api.DESCRIBE_CONFIGS: """
        Resources []struct
          ResourceType int8
          ResourceName string
          ConfigurationKeys []string?
        IncludeSynonyms bool
        IncludeDocumentation bool
    """,
    Api.SASL_AUTHENTICATE: """
        AuthBytes bytes
    """,
}

PRODUCE_START: Final = """
    TransactionalId string? 3+
    Acks int16
"""
"""How a Produce request begins, in all versions."""

ANSWERS: Final = {
    Api.LIST_OFFSETS: """
        ThrottleTimeMs int32 2+
        Topics []struct
          Name string
          Partitions []struct
            PartitionIndex int32
            ErrorCode int16
            Timestamp int64
            Offset int64
            LeaderEpoch int32 4+ = -1
    """,
    Api.METADATA: """
        ThrottleTimeMs int32 3+
        Brokers []struct
          NodeId int32
          Host string
          Port int32
          Rack string? 1+
        ClusterId string? 2+
        ControllerId int32 1+
        Topics []struct
          ErrorCode int16
          Name string?12+
          TopicId uuid 10+
          IsInternal bool 1+
          Partitions []struct
            ErrorCode int16
            PartitionIndex int32
            LeaderId int32
            LeaderEpoch int32 7+
            ReplicaNodes []int32
            IsrNodes []int32
            OfflineReplicas []int32 5+
          TopicAuthorizedOperations int32 8+
        ClusterAuthorizedOperations int32 8-10
        ErrorCode int16 13+
    """,
    Api.OFFSET_FETCH: """
        ThrottleTimeMs int32
        Groups []struct
          GroupId string
          Topics []struct
            Name string
            Partitions []struct
              PartitionIndex int32
              CommittedOffset int64
              CommittedLeaderEpoch int32
              Metadata string?
              ErrorCode int16
          ErrorCode int16
    """,
    Api.FIND_COORDINATOR: """
        ThrottleTimeMs int32 1+
        ErrorCode int16 0-3
        ErrorMessage string? 1-3
        NodeId int32 0-3
        Host string 0-3
        Port int32 0-3
        Coordinators []struct 4+
          Key string
          NodeId int32
          Host string
          Port int32
          ErrorCode int16
          ErrorMessage string?
    """,
    Api.SASL_HANDSHAKE: """
        ErrorCode int16
        Mechanisms []string
    """,
    Api.API_VERSIONS: """
        ErrorCode int16
        ApiKeys []struct
          ApiKey int16
          MinVersion int16
          MaxVersion int16
        ThrottleTimeMs int32 1+
    """,
    Api.OFFSET_FOR_LEADER_EPOCH: """
        ThrottleTimeMs int32
        Topics []struct
          Topic string
          Partitions []struct
            ErrorCode int16
            Partition int32
            LeaderEpoch int32
            EndOffset int64
    """,
    Api.DESCRIBE_CONFIGS: """
        ThrottleTimeMs int32
        Results []struct
          ErrorCode int16
          ErrorMessage string?
          ResourceType int8
          ResourceName string
          Configs []struct
            Name string
            Value string?
            ReadOnly bool
            ConfigSource int8
            IsSensitive bool
            Synonyms []struct
              Name string
              Value string?
              Source int8
            ConfigType int8
            Documentation string?
    """,
    Api.SASL_AUTHENTICATE: """
        ErrorCode int16
        ErrorMessage string?
        AuthBytes bytes
        SessionLifetimeMs int64 1+
    """,
    Api.PRODUCE: """
        Responses []struct
          Name string 0-12
          TopicId uuid 13+
          PartitionResponses []struct
            Index int32
            ErrorCode int16
            BaseOffset int64
            LogAppendTimeMs int64
            LogStartOffset int64
            RecordErrors []struct
              BatchIndex int32
              BatchIndexErrorMessage string?
            ErrorMessage string?
        ThrottleTimeMs int32
        NodeEndpoints []struct tag 0
          NodeId int32
          Host string
          Port int32
          Rack string?
    """,
    Api.DESCRIBE_CLUSTER: """
        ThrottleTimeMs int32
        ErrorCode int16
        ErrorMessage string?
        EndpointType int8 1+ = 1
        ClusterId string
        ControllerId int32
        Brokers []struct
          BrokerId int32
          Host string
          Port int32
          Rack string?
          IsFenced bool 2+
        ClusterAuthorizedOperations int32
    """,
    Api.SHARE_ACKNOWLEDGE: """
        ThrottleTimeMs int32
        ErrorCode int16
        ErrorMessage string?
        AcquisitionLockTimeoutMs int32 2+
        Responses []struct
          TopicId uuid
          Partitions []struct
            PartitionIndex int32
            ErrorCode int16
            ErrorMessage string?
            CurrentLeader struct
              LeaderId int32
              LeaderEpoch int32
        NodeEndpoints []struct
          NodeId int32
          Host string
          Port int32
          Rack string?
    """,
}
"""All but those of ``ANSWERS_IN_PARTS``. A gateway reads some versions that are not in ``SUPPORTED``."""


class Parts(NamedTuple):
    """An answer with records, of which the rest is in tables: records stay where they are, or are passed on unread."""

    top: str
    """A count of topics follows."""
    topic: str
    """A count of partitions follows."""
    partition: str
    """Records follow."""
    after_records: str
    end: str
    """Behind the topics, each of which ends with a section of tagged fields."""


ANSWERS_IN_PARTS: Final = {
    Api.FETCH: Parts(
        top="""
            ThrottleTimeMs int32
            ErrorCode int16
            SessionId int32
        """,
        topic="""
            Topic string 0-12
            TopicId uuid 13+
        """,
        partition="""
            PartitionIndex int32
            ErrorCode int16
            HighWatermark int64
            LastStableOffset int64
            LogStartOffset int64
            AbortedTransactions []struct?
              ProducerId int64
              FirstOffset int64
            PreferredReadReplica int32
        """,
        after_records="""
            DivergingEpoch struct tag 0
              Epoch int32
              EndOffset int64
            CurrentLeader struct tag 1
              LeaderId int32
              LeaderEpoch int32
        """,
        end="""
            NodeEndpoints []struct 16+ tag 0
              NodeId int32
              Host string
              Port int32
              Rack string?
        """,
    ),
    Api.SHARE_FETCH: Parts(
        top="""
            ThrottleTimeMs int32
            ErrorCode int16
            ErrorMessage string?
            AcquisitionLockTimeoutMs int32
        """,
        topic="""
            TopicId uuid
        """,
        partition="""
            PartitionIndex int32
            ErrorCode int16
            ErrorMessage string?
            AcknowledgeErrorCode int16
            AcknowledgeErrorMessage string?
            CurrentLeader struct
              LeaderId int32
              LeaderEpoch int32
        """,
        after_records="""
            AcquiredRecords []struct
              FirstOffset int64
              LastOffset int64
              DeliveryCount int16
        """,
        end="""
            NodeEndpoints []struct
              NodeId int32
              Host string
              Port int32
              Rack string?
        """,
    ),
}


LOCATION: Final = """
    SegmentId uuid
    FirstOffset int64
    LastOffset int64
    Size int32
    StorageFormat string
    CustomMetadata bytes?
    Start int64?
    Stop int64?
    ObjectLocation string?
    SignedUrl string?
    ExpiryMs int64?
    IsTransactionIndexEmpty bool
    LeaderEpochs []struct
      Epoch int32
      StartOffset int64
    Indexes []struct
      IndexType int8
      ObjectLocation string?
      SignedUrl string?
      Start int64
      Stop int64?
    TransactionIndex bytes? tag 0
"""
"""The location of a remote segment, of this project's extension."""


class ErrorCode(IntEnum):
    """The codes that a reader meets."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    REPLICA_NOT_AVAILABLE = 9
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    INVALID_GROUP_ID = 24
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    OFFSET_NOT_AVAILABLE = 78
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    RESOURCE_NOT_FOUND = 91
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    STALE_MEMBER_EPOCH = 113
    REBOOTSTRAP_REQUIRED = 129


_STALE_METADATA: Final = frozenset({3, 5, 6, 9, 13, 56, 72, 74, 100, 103})
_RETRIABLE: Final = _STALE_METADATA | {2, 7, 14, 15, 16, 70, 71, 75, 78, 88, 89, 106}


def name_of(code: int) -> str:
    """Kafka's name of a code; ``error 137`` for one that is not known here."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def describe(code: int) -> str:
    """The name and the number, as errors show them."""
    name = name_of(code)
    return name if name.startswith("error ") else f"{name} ({code})"


def is_retriable(code: int) -> bool:
    """Whether the same request may succeed later, perhaps elsewhere."""
    return code in _RETRIABLE


def makes_metadata_stale(code: int) -> bool:
    """Whether leaders and addresses must be asked for anew before the next try."""
    return code in _STALE_METADATA
