"""Writing to S3, Azure and Google: one class each, over the clients that fsspec's filesystems hold."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from segreader.errors import StorageError
from segreader.storage.cloud.pages import Pages, azure_pages, google_pages, s3_pages
from segreader.storage.options import Kind
from segreader.storage.target.bucket import Upload, WritableBucket

_ANY_BYTES = "application/octet-stream"


class S3Target:
    """A bucket of S3 or of an S3-compatible store.

    Source: S3 API reference, ``PutObject``: with ``If-None-Match: *`` it answers 412 where there is an object, and 409
    where another writer hinders it.
    """

    rivals = 8  # many stores are S3-compatible, and some check before they write

    def __init__(self, filesystem: Any, bucket: str) -> None:
        self.base = f"s3://{bucket}/"
        self.hint = (
            "Set key and secret (and token) or profile in storage_options, or the variables that AWS clients read. The "
            "rights needed are s3:GetObject, s3:PutObject, s3:DeleteObject, s3:AbortMultipartUpload and s3:ListBucket; "
            "with s3:ListBucketMultipartUploads what killed writers left is removed, too"
        )
        self.rights: Mapping[str, str] = {
            "write": "s3:PutObject, and the key's use where the bucket encrypts with KMS",
            "read": "s3:GetObject, and s3:ListBucket, without which S3 refuses what is not there",
            "list": "s3:ListBucket on the bucket itself",
            "delete": "s3:DeleteObject",
        }
        self._filesystem = filesystem
        self._filesystem.retries = 1  # botocore retries; s3fs would repeat all of that five times
        self._bucket = bucket

    def put(self, key: str, data: bytes, *, is_new: bool = False) -> None:
        """``PutObject``."""
        self._call("put_object", key, Body=data, **({"IfNoneMatch": "*"} if is_new else {}))

    def get(self, key: str) -> bytes:
        """``GetObject``."""
        from fsspec.asyn import sync

        async def read() -> bytes:
            answer = await self._filesystem._call_s3(
                "get_object", Bucket=self._bucket, Key=key, **self._filesystem.req_kw
            )
            async with answer["Body"] as body:
                return bytes(await body.read())

        return bytes(sync(self._filesystem.loop, read))

    def remove(self, key: str) -> None:
        """``DeleteObject``."""
        self._call("delete_object", key)

    def pages(self, prefix: str) -> Pages:
        """``ListObjectsV2``."""
        return s3_pages(self._filesystem, self._bucket, prefix)

    def upload(self, key: str) -> Upload:
        """``CreateMultipartUpload``."""
        return _S3Upload(self, key)

    def begun(self, prefix: str) -> Iterator[tuple[str, Callable[[], None]]]:
        """``ListMultipartUploads``, a page at a time, and ``AbortMultipartUpload``."""
        markers: dict[str, str] = {}
        while True:
            page = self._filesystem.call_s3(
                "list_multipart_uploads", Bucket=self._bucket, Prefix=prefix, **markers, **self._filesystem.req_kw
            )
            for one in page.get("Uploads", ()):
                yield one["Key"], partial(self._call, "abort_multipart_upload", one["Key"], UploadId=one["UploadId"])
            if not page.get("IsTruncated"):
                return
            markers = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}

    def _call(self, method: str, key: str, **arguments: Any) -> Any:
        return self._filesystem.call_s3(method, Bucket=self._bucket, Key=key, **arguments, **self._filesystem.req_kw)


class _S3Upload:
    """Parts that S3 keeps until they are completed or aborted."""

    def __init__(self, target: S3Target, key: str) -> None:
        self._call = target._call
        self._key = key
        self._upload = self._call("create_multipart_upload", key)["UploadId"]
        self._parts: list[dict[str, object]] = []
        self._size = 0

    def add(self, data: bytes) -> None:
        number = len(self._parts) + 1
        answer = self._call("upload_part", self._key, UploadId=self._upload, PartNumber=number, Body=data)
        self._parts.append({"PartNumber": number, "ETag": answer["ETag"]})
        self._size += len(data)

    def finish(self, data: bytes) -> None:
        self.add(data)
        parts = {"Parts": self._parts}
        try:
            self._call("complete_multipart_upload", self._key, UploadId=self._upload, MultipartUpload=parts)
        except Exception:  # if only the answer was lost, botocore's retry finds no such upload
            if not self._is_there():
                raise

    def _is_there(self) -> bool:
        """Whether the object is one of so many parts and bytes: S3's ETag ends with the number of parts."""
        try:
            found = self._call("head_object", self._key)
        except Exception:  # the error of the completion is raised
            return False
        tag = str(found.get("ETag", "")).strip('"')
        return found.get("ContentLength") == self._size and tag.endswith(f"-{len(self._parts)}")

    def abort(self) -> None:
        self._call("abort_multipart_upload", self._key, UploadId=self._upload)


class AzureTarget:
    """A container of Azure Blob storage.

    Source: Blob service REST API, ``Put Blob`` and ``Put Block List``: with ``If-None-Match: *`` 409 where there is a
    blob; blocks that no list names are no blob.
    """

    rivals = 1

    def __init__(self, filesystem: Any, container: str) -> None:
        self.base = f"abfs://{container}/"
        self.hint = (
            "Set account_name with account_key or sas_token, or connection_string, in storage_options, or the "
            "variables that Azure's clients read. The rights needed are to read, write, delete and list blobs"
        )
        self.rights: Mapping[str, str] = {
            act: f"the role Storage Blob Data Contributor, or '{letters}' in a SAS"
            for act, letters in (("write", "c' and 'w"), ("read", "r"), ("list", "l"), ("delete", "d"))
        }
        self._filesystem = filesystem
        self._container = container

    def put(self, key: str, data: bytes, *, is_new: bool = False) -> None:
        """``Put Blob``."""
        self.call(key, "upload_blob", data, overwrite=not is_new)

    def get(self, key: str) -> bytes:
        """``Get Blob``."""
        from fsspec.asyn import sync

        async def read() -> bytes:
            async with self._filesystem.service_client.get_blob_client(self._container, key) as client:
                stream = await client.download_blob()
                return bytes(await stream.readall())

        return bytes(sync(self._filesystem.loop, read))

    def remove(self, key: str) -> None:
        """``Delete Blob``."""
        self.call(key, "delete_blob")

    def pages(self, prefix: str) -> Pages:
        """``List Blobs``."""
        return azure_pages(self._filesystem, self._container, prefix)

    def upload(self, key: str) -> Upload:
        """No request before the first block."""
        return _AzureUpload(self, key)

    def begun(self, prefix: str) -> Iterator[tuple[str, Callable[[], None]]]:
        """Azure forgets blocks after a week."""
        return iter(())

    def call(self, key: str, method: str, *arguments: Any, **named: Any) -> Any:
        """What the client of one blob answers."""
        from fsspec.asyn import sync

        async def ask() -> Any:
            async with self._filesystem.service_client.get_blob_client(self._container, key) as client:
                return await getattr(client, method)(*arguments, **named)

        return sync(self._filesystem.loop, ask)


class _AzureUpload:
    """Blocks under unique names: another writer of the same blob may stage its own."""

    def __init__(self, target: AzureTarget, key: str) -> None:
        self._call = target.call
        self._key = key
        self._blocks: list[str] = []

    def add(self, data: bytes) -> None:
        block = uuid4().hex
        self._call(self._key, "stage_block", block, data, length=len(data))
        self._blocks.append(block)

    def finish(self, data: bytes) -> None:
        from azure.storage.blob import BlobBlock

        self.add(data)
        self._call(self._key, "commit_block_list", [BlobBlock(block) for block in self._blocks])

    def abort(self) -> None:
        """Azure has no request for this; it forgets the blocks after a week."""


class GoogleTarget:
    """A bucket of Google Cloud Storage.

    Source: JSON API, ``objects.insert``: with ``ifGenerationMatch=0`` 412 where there is an object.
    """

    rivals = 1  # of more, it would slow down all: one change of an object a second is its limit

    def __init__(self, filesystem: Any, bucket: str) -> None:
        self.base = f"gs://{bucket}/"
        self.hint = (
            "Set token to a service account's key file in storage_options, or GOOGLE_APPLICATION_CREDENTIALS. The "
            "rights needed are storage.objects.create, .get, .delete and .list"
        )
        self.rights: Mapping[str, str] = {
            "write": "storage.objects.create, and storage.objects.delete to replace one",
            "read": "storage.objects.get",
            "list": "storage.objects.list",
            "delete": "storage.objects.delete",
        }
        self._filesystem = filesystem
        self._bucket = bucket

    def put(self, key: str, data: bytes, *, is_new: bool = False) -> None:
        """``objects.insert`` in one request."""
        condition = {"ifGenerationMatch": "0"} if is_new else {}
        self.insert("media", key, data=data, headers={"Content-Type": _ANY_BYTES}, **condition)

    def get(self, key: str) -> bytes:
        """``objects.get``."""
        return bytes(self.call("GET", self._place(key), alt="media")[1])

    def remove(self, key: str) -> None:
        """``objects.delete``."""
        self.call("DELETE", self._place(key))

    def pages(self, prefix: str) -> Pages:
        """``objects.list``."""
        return google_pages(self._filesystem, self._bucket, prefix)

    def upload(self, key: str) -> Upload:
        """``objects.insert``, resumable."""
        return _GoogleUpload(self, key)

    def begun(self, prefix: str) -> Iterator[tuple[str, Callable[[], None]]]:
        """Google does not list sessions, and forgets one after a week."""
        return iter(())

    def insert(self, kind: str, key: str, **arguments: Any) -> Any:
        """Headers of the answer to ``objects.insert``."""
        place = f"{self._filesystem._location}/upload/storage/v1/b/{quote(self._bucket, safe='')}/o"
        return self.call("POST", place, uploadType=kind, name=key, **arguments)[0]

    def call(self, method: str, url: str, **arguments: Any) -> Any:
        """Headers and body of an answer."""
        try:
            return self._filesystem.call(method, url, **arguments)
        except OSError as error:
            if str(error).startswith("Forbidden"):  # the only sign of a 403 from gcsfs
                raise PermissionError(str(error)) from error
            raise

    def _place(self, key: str) -> str:
        return f"{self._filesystem._location}/storage/v1/b/{quote(self._bucket, safe='')}/o/{quote(key, safe='')}"


class _GoogleUpload:
    """A session of a resumable upload. Its URL is worth a credential.

    Source: "Resumable uploads": a part that is not the last is answered with 308, and ``Range`` names what was kept.
    """

    def __init__(self, target: GoogleTarget, key: str) -> None:
        headers = {"X-Upload-Content-Type": _ANY_BYTES}
        self._session: str = target.insert("resumable", key, headers=headers, json={})["Location"]
        self._call = target.call
        self._at = 0

    def add(self, data: bytes) -> None:
        self._send(data, "*")

    def finish(self, data: bytes) -> None:
        body = self._send(data, str(self._at + len(data)))
        if int(json.loads(body).get("size", -1)) != self._at:
            raise StorageError("Google kept another number of bytes than was sent", expected=self._at)

    def abort(self) -> None:
        self._call("DELETE", self._session)

    def _send(self, data: bytes, total: str) -> bytes:
        """Send all of it, going on where Google reports that it stopped; returns the last answer's body."""
        while True:
            span = f"bytes {self._at}-{self._at + len(data) - 1}/{total}"
            headers, body = self._call("PUT", self._session, headers={"Content-Range": span}, data=data)
            if total != "*" and body and "Range" not in headers:
                self._at += len(data)
                return bytes(body)
            kept = int(headers["Range"].rpartition("-")[2]) + 1 if "Range" in headers else 0
            if not self._at < kept <= self._at + len(data):
                raise StorageError("Google kept nothing of a part", found=f"{kept} bytes kept", expected=span)
            data, self._at = data[kept - self._at :], kept
            if not data:
                return bytes(body)


_WRITERS: dict[Kind, Callable[[Any, str], WritableBucket]] = {
    Kind.S3: S3Target,
    Kind.AZURE: AzureTarget,
    Kind.GCS: GoogleTarget,
}


def writable_bucket(kind: Kind, filesystem: Any, bucket: str) -> WritableBucket:
    """What writes to a bucket.

    Args:
        kind: which cloud's.
        filesystem: fsspec's one for it, made for this bucket alone.
        bucket: its name.
    """
    return _WRITERS[kind](filesystem, bucket)
