"""What follows the last whole batch of a segment, and whether that is allowed."""

from __future__ import annotations

from segreader.errors import TruncatedError
from segreader.format.scanner import Done, Tail
from segreader.segment import Segment


def require_whole(done: Done, segment: Segment) -> None:
    """Refuse a finished segment that ends too early: batches may be missing.

    Raises:
        TruncatedError: it ends inside a batch, or in zeros that its layout does not put there.
    """
    if done.tail is Tail.END or segment.is_active or (segment.is_padded and done.tail is Tail.ZERO):
        return
    raise truncated(done)


def truncated(done: Done) -> TruncatedError:
    """The error of a segment that ends where ``done`` says."""
    missing = f", {done.missing_bytes} bytes are missing" if done.missing_bytes is not None else ""
    return TruncatedError(
        "the segment ends inside a batch" if done.tail is Tail.CUT else "the segment ends in zeros",
        position=done.position,
        base_offset=done.base_offset,
        found=f"{done.trailing_bytes} bytes after the last whole batch{missing}",
        expected="a whole batch",
        hint="The copy is incomplete: fetch the segment again",
    )


def ends_early(source: str, size: int, last: int, named: int) -> TruncatedError:
    """The error of a log that ends with a whole batch, but before an offset that a file beside it names.

    Args:
        source: the log.
        size: its bytes.
        last: its last offset.
        named: the offset that the file names.
    """
    return TruncatedError(
        "the log ends before an offset that a file beside it names",
        source=source,
        position=size,
        offset=last + 1,
        found=f"{size} bytes, with offsets up to {last}",
        expected=f"offset {named}",
        hint="The copy is incomplete, or its index or snapshot is damaged: fetch the segment again, or look with "
        "segreader verify",
    )
