"""The page of metrics at a port of its own: enough HTTP for Prometheus, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from segreader.errors import OptionError

_LONGEST_HEAD = 8 << 10
_PATIENCE_S = 5.0


async def serve_metrics(host: str, port: int, text: Callable[[], str]) -> asyncio.Server:
    """Answer ``GET /metrics`` with ``text()``.

    Raises:
        OptionError: the port cannot be had.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_PATIENCE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ", 2)[1:2]
                is_known = head.startswith(b"GET ") and path in ([b"/metrics"], [b"/"])
                body = text().encode() if is_known else b"see /metrics\n"
                status = b"200 OK" if is_known else b"404 Not Found"
                writer.write(
                    b"HTTP/1.1 %b\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
                    b"Content-Length: %d\r\nConnection: close\r\n\r\n%b" % (status, len(body), body)
                )
                await writer.drain()
        writer.close()

    try:
        return await asyncio.start_server(answer, host, port, limit=_LONGEST_HEAD)
    except OSError as error:
        raise OptionError("the port of the metrics cannot be had", found=f"{host}:{port} ({error.strerror})") from None
