"""The test kit: real segment bytes without Kafka, for this project's tests and for those of its users.

``directory`` lays segments out as a broker or a remote store does, ``layouts``, ``redpanda`` and ``aiven`` (encryption
needs cryptography) as other people's plugins do; ``stores`` keeps objects in memory, records
requests and plants faults; ``strategies`` (needs hypothesis) makes segments up at random.
"""

from segreader.testing.batches import Lies
from segreader.testing.builder import SegmentBuilder
from segreader.testing.records import ProducerRecord

__all__ = ["Lies", "ProducerRecord", "SegmentBuilder"]
