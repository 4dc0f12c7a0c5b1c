"""The messages of the Kafka protocol that are asked and read here, as tables of their fields.

A line is ``Name type versions``: ``[]`` makes an array, ``?`` a value that may be null (``?12+``: from version 12 on),
``tag 0`` a tagged field, ``= -1`` the value in a version without the field. Fields of a ``struct`` follow, further
to the right. A field without versions is in all that ``versions.SUPPORTED`` lists. Tagged fields that nothing here
reads are left out: they are kept as unknown ones. Source: the message schemas of Apache Kafka 4.3.
"""

from __future__ import annotations

from typing import Final

from segreader.broker.versions import Api

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
        ThrottleTimeMs int32
        Brokers []struct
          NodeId int32
          Host string
          Port int32
          Rack string?
        ClusterId string?
        ControllerId int32
        Topics []struct
          ErrorCode int16
          Name string?12+
          TopicId uuid 10+
          IsInternal bool
          Partitions []struct
            ErrorCode int16
            PartitionIndex int32
            LeaderId int32
            LeaderEpoch int32
            ReplicaNodes []int32
            IsrNodes []int32
            OfflineReplicas []int32
          TopicAuthorizedOperations int32
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
        ThrottleTimeMs int32
        Coordinators []struct
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
}
"""All but Fetch, whose answer is read in parts: records stay where they are, and a gateway passes them on unread."""

FETCH_TOP: Final = """
    ThrottleTimeMs int32
    ErrorCode int16
    SessionId int32
"""
"""Topics follow, with their count before them, and ``FETCH_TAGS``."""

FETCH_TOPIC: Final = """
    Topic string 0-12
    TopicId uuid 13+
"""
"""Partitions follow, with their count before them, and a section of tagged fields."""

FETCH_PARTITION: Final = """
    PartitionIndex int32
    ErrorCode int16
    HighWatermark int64
    LastStableOffset int64
    LogStartOffset int64
    AbortedTransactions []struct?
      ProducerId int64
      FirstOffset int64
    PreferredReadReplica int32
"""
"""Records follow, and ``FETCH_PARTITION_TAGS``."""

FETCH_PARTITION_TAGS: Final = """
    DivergingEpoch struct tag 0
      Epoch int32
      EndOffset int64
    CurrentLeader struct tag 1
      LeaderId int32
      LeaderEpoch int32
"""

FETCH_TAGS: Final = """
    NodeEndpoints []struct 16+ tag 0
      NodeId int32
      Host string
      Port int32
      Rack string?
"""
