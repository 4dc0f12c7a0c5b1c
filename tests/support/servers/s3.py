"""What every S3-compatible server of the tests offers: an endpoint, a key pair, and a way to put objects there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

REGION = "us-east-1"
BUCKET = "segments"


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running S3 server with one bucket."""

    endpoint: str
    key: str
    secret: str = field(repr=False)
    bucket: str = BUCKET

    @property
    def storage_options(self) -> dict[str, object]:
        """What a user would give."""
        return {"key": self.key, "secret": self.secret, "endpoint_url": self.endpoint, "region": REGION}

    def client(self) -> Any:
        """A boto3 client with the server's key pair; path style, signature version 4."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.key,
            aws_secret_access_key=self.secret,
            region_name=REGION,
            config=Config(
                signature_version="s3v4",
                s3={"addressing_style": "path"},
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                retries={"max_attempts": 2},
            ),
        )

    def upload(self, objects: Mapping[str, bytes]) -> None:
        """Put the objects into the bucket, which is made if it is not there."""
        client = self.client()
        if self.bucket not in [entry["Name"] for entry in client.list_buckets().get("Buckets", [])]:
            client.create_bucket(Bucket=self.bucket)
        for name, data in objects.items():
            client.put_object(Bucket=self.bucket, Key=name, Body=data)

    def delete(self, name: str) -> None:
        """Remove one object."""
        self.client().delete_object(Bucket=self.bucket, Key=name)

    def signed_url(self, name: str, expires_s: int = 3600) -> str:
        """A presigned URL that reads one object."""
        url: str = self.client().generate_presigned_url(
            "get_object", Params={"Bucket": self.bucket, "Key": name}, ExpiresIn=expires_s
        )
        return url
