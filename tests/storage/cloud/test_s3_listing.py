"""Listed objects that are read without botocore are those that it reads, or all of the listing is left to it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest
from botocore.parsers import create_parser
from botocore.session import get_session
from hypothesis import given
from hypothesis import strategies as st
from servers.pool import ServerPool

from segreader.storage.base import ObjectInfo, tag_of
from segreader.storage.cloud import pages
from segreader.storage.cloud.pages import modified_ms, parse_objects
from segreader.storage.location import open_store

pytestmark = pytest.mark.xdist_group("servers")

SHAPE = get_session().get_service_model("s3").operation_model("ListObjectsV2").output_shape
HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
TAIL = "<IsTruncated>false</IsTruncated></ListBucketResult>"
TIME = "<LastModified>2026-01-02T03:04:05.678Z</LastModified>"

FLAVOURS = {
    "s3": "<Contents><Key>{key}</Key>"
    + TIME
    + "<ETag>&quot;{etag}&quot;</ETag><ChecksumAlgorithm>CRC64NVME</ChecksumAlgorithm>"
    "<ChecksumType>FULL_OBJECT</ChecksumType><Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>",
    "minio": "<Contents><Key>{key}</Key>"
    + TIME
    + "<ETag>&#34;{etag}&#34;</ETag><Size>{size}</Size><Owner><ID>02d6176db174</ID><DisplayName>minio</DisplayName>"
    "</Owner><StorageClass>STANDARD</StorageClass></Contents>",
    "ceph": "\n  <Contents>\n    <Key>{key}</Key>\n    <LastModified>2026-01-02T03:04:05Z</LastModified>\n    "
    '<ETag>"{etag}"</ETag>\n    <Size>{size}</Size>\n    <StorageClass>STANDARD</StorageClass>\n    <Owner>\n      '
    "<ID>u</ID>\n    </Owner>\n    <Type>Normal</Type>\n  </Contents>\n",
    "plain": "<Contents><Key>{key}</Key>" + TIME + "<ETag>{etag}</ETag><Size>{size}</Size></Contents>",
}


def by_botocore(body: bytes) -> Sequence[ObjectInfo]:
    parsed: dict[str, Any] = create_parser("rest-xml").parse(
        {"headers": {}, "status_code": 200, "body": body, "context": {"operation_name": "ListObjectsV2"}}, SHAPE
    )
    return [
        ObjectInfo(one["Key"], int(one["Size"]), modified_ms(one["LastModified"]), tag_of("etag", one["ETag"]))
        for one in parsed.get("Contents", ())
    ]


@given(
    st.sampled_from(sorted(FLAVOURS)),
    st.lists(
        st.tuples(
            st.text(st.characters(codec="utf-8", exclude_characters="\r"), min_size=1, max_size=20),
            st.from_regex(r"[0-9a-f]{32}(-[0-9]{1,3})?|[A-Za-z0-9+/=_-]{0,120}|W/&quot;x&quot;", fullmatch=True),
            st.integers(0, 1 << 50),
        ),
        max_size=5,
    ),
    st.booleans(),
)
def test_what_is_read_is_what_botocore_reads(flavour: str, objects: list[tuple[str, str, int]], is_late: bool) -> None:
    written = "".join(
        FLAVOURS[flavour].format(
            key=key.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"), etag=etag, size=size
        )
        for key, etag, size in objects
    )
    prefixes = "<CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes>"
    body = (HEAD + (prefixes + written if is_late else written + prefixes) + TAIL).encode()
    if (parsed := parse_objects(body)) is not None:
        assert parsed[0] == by_botocore(body)
        assert b"Contents>" not in parsed[1]
        assert prefixes.encode() in parsed[1]
    if all(key.isascii() and key.isprintable() and not {*key} & {*"&<>"} for key, _, _ in objects):
        assert parsed is not None or any(etag.startswith("W/&") for _, etag, _ in objects)


ONE = FLAVOURS["s3"].format(key="a", etag="0" * 32, size=1)


@pytest.mark.parametrize(
    "body",
    [
        HEAD + f"<!-- {ONE} -->" + TAIL,
        HEAD + f"<![CDATA[{ONE}]]>" + TAIL,
        HEAD + f"<?note {ONE} ?>" + ONE + TAIL,
        HEAD + ONE + "<Contents><Size>1</Size><Key>b</Key></Contents>" + TAIL,
        HEAD + ONE + ONE.replace("Contents>", "s3:Contents>") + TAIL,
        HEAD + ONE.replace("<Key>a", "<Key>&#97;") + TAIL,
        HEAD + ONE.replace("<Contents>", "<Contents x='1'>") + TAIL,
        HEAD + ONE.replace("01-02T", "13-02T") + TAIL,
        HEAD + ONE.replace("<Key>a", "<Key>ä") + TAIL,
        HEAD.replace("UTF-8", "UTF-16") + ONE + TAIL,
        "<!DOCTYPE x>" + HEAD + ONE + TAIL,
        "<Error><Code>SlowDown</Code></Error>",
        "",
    ],
)
def test_what_is_written_otherwise_is_left_to_a_parser_of_xml(body: str) -> None:
    assert parse_objects(body.encode()) is None


@pytest.mark.parametrize("name", ["moto", "rclone", "swift"])
def test_a_store_is_listed_as_botocore_lists_it(
    servers: ServerPool, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = servers.get(name)
    server.upload({f"listed/{key}": b"12" for key in ("a", "b c", "d+e", "f%20g", "h/ü", "i/j&k")})
    store, prefix = open_store(f"s3://{server.bucket}/listed", storage_options=server.storage_options)
    with closing(store):
        list(store.list(prefix))  # connects
        quick = list(store.list(prefix)), list(store.list_level(prefix))
        read: list[int] = []

        def leave(body: bytes) -> None:
            read.append(len(body))

        monkeypatch.setattr(pages, "parse_objects", leave)
        slow = list(store.list(prefix)), list(store.list_level(prefix))
        assert slow == quick
    assert read
    assert len(quick[0]) == 6


def test_listings_of_others_by_the_same_client_are_whole(servers: ServerPool) -> None:
    server = servers.get("moto")
    server.upload({"whole/a": b"1"})
    store, prefix = open_store(f"s3://{server.bucket}/whole", storage_options=server.storage_options)
    with closing(store):
        assert list(store.list(prefix)) == list(store.list(prefix))
        filesystem = store._signing.bucket._filesystem  # type: ignore[attr-defined]
        answer = filesystem.call_s3("list_objects_v2", Bucket=server.bucket, Prefix="whole/")
    assert [one["Key"] for one in answer["Contents"]] == ["whole/a"]
