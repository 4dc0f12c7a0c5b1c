"""Where the record batches of a Fetch answer lie, and of which leader epoch they are; nothing of what is in them.

The last batch may be cut off, and damage is left for whoever decodes the records: the walk ends before either.
"""

from __future__ import annotations

from struct import Struct

from segreader.broker.rules.truncation import BatchFacts

_LEAST_BATCH = 61
_OVERHEAD = 12
_HEAD = Struct(">qiib")  # base offset, length, leader epoch, magic
_DELTA_POSITION = 23
_DELTA = Struct(">i")


def parse_batch_facts(records: memoryview) -> list[tuple[BatchFacts, int]]:
    """Each whole batch with the position behind it. Message sets of before Kafka 0.11 have no epochs: -1.

    Source: KIP-98; Kafka 4.3 ``DefaultRecordBatch``.
    """
    found: list[tuple[BatchFacts, int]] = []
    position, stop = 0, len(records)
    while stop - position >= _HEAD.size:
        base_offset, length, leader_epoch, magic = _HEAD.unpack_from(records, position)
        after = position + _OVERHEAD + length
        if length <= 0 or after > stop:
            break
        if magic < 2:
            found.append((BatchFacts(base_offset, base_offset, -1), after))
        elif after - position < _LEAST_BATCH:
            break
        else:
            delta = _DELTA.unpack_from(records, position + _DELTA_POSITION)[0]
            found.append((BatchFacts(base_offset, base_offset + delta, leader_epoch), after))
        position = after
    return found
