"""Google Cloud Storage as delta-rs speaks with it: the XML interface, with tokens that a service account signs itself.

Over the objects of a ``GoogleServer``. Source: "XML API overview" and "Request preconditions" of Google's reference.
"""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree.ElementTree import Element, SubElement, fromstring, tostring

if TYPE_CHECKING:
    from servers.google import GoogleServer

Answer = tuple[int, dict[str, str], bytes]
_WHEN = "Fri, 02 Jan 2026 03:04:05 GMT"
_PAGE = 3


def is_xml(request: BaseHTTPRequestHandler) -> bool:
    """Whether a request is one of this interface: who asks shows a token that it signed itself."""
    return request.headers.get("Authorization", "").startswith("Bearer eyJ")


def answer_xml(server: GoogleServer, request: BaseHTTPRequestHandler) -> Answer:
    """Status, headers and body."""
    parts = urlsplit(request.path)
    query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    data = request.rfile.read(int(request.headers.get("Content-Length", 0)))
    bucket, _, name = unquote(parts.path).removeprefix("/").partition("/")
    if bucket != server.bucket:
        return 404, {}, b"<Error><Code>NoSuchBucket</Code></Error>"
    with server.lock:
        if not name:
            return _listed(server, query)
        if request.command == "POST" and "uploads" in query:
            upload = f"upload-{len(server.parts)}"
            server.parts[upload] = {}
            made = Element("InitiateMultipartUploadResult")
            SubElement(made, "UploadId").text = upload
            return 200, {}, tostring(made)
        if "uploadId" in query and request.command == "PUT":
            server.parts[query["uploadId"]][query["partNumber"]] = data
            return 200, {"ETag": f'"{query["partNumber"]}"'}, b""
        if "uploadId" in query and request.command == "POST":
            kept = server.parts.pop(query["uploadId"])
            numbers = [one.findtext("PartNumber") or "" for one in fromstring(data).iter("Part")]
            return _put(server, request, name, b"".join(kept[number] for number in numbers))
        if request.command == "PUT":
            return _put(server, request, name, data)
        if request.command == "DELETE":
            return (204, {}, b"") if server.objects.pop(name, None) is not None else _missing()
        return _got(server, request, name)


def _missing() -> Answer:
    return 404, {}, b"<Error><Code>NoSuchKey</Code></Error>"


def _put(server: GoogleServer, request: BaseHTTPRequestHandler, name: str, data: bytes) -> Answer:
    if request.headers.get("x-goog-if-generation-match") == "0" and name in server.objects:
        return 412, {}, b"<Error><Code>PreconditionFailed</Code></Error>"
    server.objects[name] = data
    if request.command == "PUT":
        return 200, {"ETag": '"1"', "x-goog-generation": "1"}, b""
    made = Element("CompleteMultipartUploadResult")
    SubElement(made, "ETag").text = '"1"'
    return 200, {"x-goog-generation": "1"}, tostring(made)


def _got(server: GoogleServer, request: BaseHTTPRequestHandler, name: str) -> Answer:
    data = server.objects.get(name)
    if data is None:
        return _missing()
    told = {"ETag": '"1"', "Last-Modified": _WHEN, "x-goog-generation": "1"}
    span = request.headers.get("Range")
    if request.command == "HEAD" or span is None:
        return 200, told, data
    first, _, last = span.removeprefix("bytes=").partition("-")
    start = int(first) if first else len(data) - int(last)
    stop = min(int(last) + 1, len(data)) if first and last else len(data)
    return 206, {**told, "Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"}, data[start:stop]


def _listed(server: GoogleServer, query: dict[str, str]) -> Answer:
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    after = query.get("continuation-token") or query.get("start-after", "")
    names = sorted(name for name in server.objects if name.startswith(prefix) and name > after)
    found = Element("ListBucketResult")
    directories: set[str] = set()
    shown, last = 0, ""
    for name in names:
        directory, is_below, _ = name[len(prefix) :].partition(delimiter) if delimiter else (name, "", "")
        if is_below:
            directories.add(f"{prefix}{directory}{delimiter}")
            continue
        if shown == _PAGE:
            SubElement(found, "NextContinuationToken").text = last
            break
        entry, last, shown = SubElement(found, "Contents"), name, shown + 1
        SubElement(entry, "Key").text = name
        SubElement(entry, "Size").text = str(len(server.objects[name]))
        SubElement(entry, "LastModified").text = "2026-01-02T03:04:05.678Z"
        SubElement(entry, "ETag").text = '"1"'
    for directory in sorted(directories):
        SubElement(SubElement(found, "CommonPrefixes"), "Prefix").text = directory
    return 200, {"Content-Type": "application/xml"}, tostring(found)
