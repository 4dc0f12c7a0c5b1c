"""Schemas of AWS Glue's registry, through boto3.

Source: AWS Glue API, ``ListSchemas``, ``ListSchemaVersions``, ``GetSchemaVersion``.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from segreader.errors import (
    OptionError,
    SchemaAccessError,
    SchemaNotFoundError,
    SchemaRegistryError,
    install_hint,
)
from segreader.typed.schema import Framing, Schema, SchemaFormat, SchemaSet, Version
from segreader.values import dataclass

_MOST_VERSIONS: Final = 100_000
_DENIED: Final = ("AccessDeniedException", "UnrecognizedClientException", "ExpiredTokenException")


def glue(
    registry_name: str,
    *,
    region: str | None = None,
    schema_name: str | Collection[str] | None = None,
    profile: str | None = None,
    endpoint_url: str | None = None,
    message: str | None = None,
) -> GlueRegistry:
    """Schemas of a registry of AWS Glue; needs boto3. Credentials are those that boto3 finds.

    Args:
        registry_name: as in the console, such as ``default-registry``.
        schema_name: whose schemas to take: one, or several. By default the one that is named after the topic, as
            Glue's serializers name it.
        profile: of the credentials file.
        endpoint_url: in place of AWS's.
        message: of Protobuf schemas: the full name of the message whose fields are read; the first one by default.
    """
    names = (schema_name,) if isinstance(schema_name, str) else None if schema_name is None else tuple(schema_name)
    return GlueRegistry(registry_name, region, names, profile, endpoint_url, message)


@dataclass(frozen=True, slots=True)
class GlueRegistry:
    """Which registry, and whose schemas, as ``glue`` says."""

    registry_name: str
    region: str | None = None
    schema_names: tuple[str, ...] | None = None
    profile: str | None = None
    endpoint_url: str | None = None
    message: str | None = None

    def learn(self, topic: str | None) -> SchemaSet:
        """The schemas of a topic; ``None``: of all schemas in the registry.

        Raises:
            OptionError: boto3 is not installed, or finds no region or credentials.
            SchemaNotFoundError: there is no such registry or schema. SchemaAccessError: AWS refuses the request.
            SchemaRegistryError: Glue cannot be asked.
        """
        client = self._client()
        names = self.schema_names or ((topic,) if topic is not None else None)
        if names is None:
            listed = self._pages(client.list_schemas, "Schemas", RegistryId={"RegistryName": self.registry_name})
            names = tuple(one["SchemaName"] for one in listed)
        ids: list[tuple[str, Schema]] = []
        subjects = []
        for name in names:
            schema_id = {"SchemaName": name, "RegistryName": self.registry_name}
            versions = []
            for one in self._pages(client.list_schema_versions, "Schemas", SchemaId=schema_id):
                if one.get("Status") in ("FAILURE", "DELETING"):
                    continue
                id = uuid.UUID(one["SchemaVersionId"])
                ids.append((id.hex, self._schema(client, str(id))))
                versions.append(Version(one["VersionNumber"], id.hex))
            subjects.append((name, tuple(sorted(versions, key=lambda version: version.version))))
        return SchemaSet(framing=Framing.GLUE, ids=tuple(ids), subjects=tuple(subjects), message=self.message)

    def _client(self) -> Any:
        try:
            import boto3
            from botocore.config import Config
        except ImportError:
            raise OptionError("schemas of AWS Glue need boto3", hint=install_hint("glue")) from None
        config = Config(retries={"mode": "standard", "max_attempts": 5}, connect_timeout=10, read_timeout=30)

        def made(**_: Any) -> Any:
            session = boto3.Session(profile_name=self.profile, region_name=self.region)
            return session.client("glue", endpoint_url=self.endpoint_url, config=config)

        return self._asked(made)

    def _schema(self, client: Any, id: str) -> Schema:
        answer = self._asked(client.get_schema_version, SchemaVersionId=id)
        schema = Schema(SchemaFormat(answer["DataFormat"].lower()), answer["SchemaDefinition"])
        if schema.format is SchemaFormat.PROTOBUF:
            from segreader.typed.formats.protobuf import described

            return described(schema)
        return schema

    def _pages(self, call: Callable[..., Any], field: str, **arguments: Any) -> Iterator[Mapping[str, Any]]:
        token: dict[str, str] = {}
        for _ in range(_MOST_VERSIONS):
            page = self._asked(call, **arguments, **token)
            yield from page.get(field, ())
            if not page.get("NextToken"):
                return
            token = {"NextToken": page["NextToken"]}

    def _asked(self, call: Callable[..., Any], **arguments: Any) -> Any:
        """The answer to one call. What AWS says in an error is not shown but for its code."""
        from botocore.exceptions import BotoCoreError, ClientError

        source = f"glue registry {self.registry_name}"
        code, name = "", ""
        try:
            return call(**arguments)
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
        except BotoCoreError as error:
            name = type(error).__name__
        if code == "EntityNotFoundException":
            raise SchemaNotFoundError(
                "the registry has no such schema", source=source, hint="See registry, region and schema_name"
            )
        if code in _DENIED:
            raise SchemaAccessError("AWS refuses the request", source=source, found=code)
        if name in ("NoRegionError", "NoCredentialsError", "PartialCredentialsError", "ProfileNotFound"):
            raise OptionError("AWS cannot be asked", source=source, found=name, hint="Give region, or a profile")
        raise SchemaRegistryError("AWS Glue cannot be asked", source=source, found=code or name)
