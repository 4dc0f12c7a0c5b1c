from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from typed_orders import HERE

from segreader.errors import OptionError, SchemaAccessError, SchemaNotFoundError, SchemaRegistryError
from segreader.schemas import glue
from segreader.typed.schema import Framing, Schema, SchemaFormat

TEXTS = [(HERE / "avro" / f"order-v{number}.avsc").read_text() for number in (1, 2)]
IDS = [str(uuid.uuid5(uuid.NAMESPACE_URL, text)) for text in TEXTS]
NOW = datetime(2026, 11, 1, tzinfo=UTC).isoformat()


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stubber]:
    """What Glue answers, in order; botocore holds requests and answers to AWS's own description of them."""
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.setenv(f"AWS_{name}", "testing")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    client = boto3.client("glue", region_name="eu-central-1")
    monkeypatch.setattr(boto3.Session, "client", lambda *_, **__: client)
    with Stubber(client) as stubber:
        yield stubber
        stubber.assert_no_pending_responses()


def add_schema(aws: Stubber, name: str, texts: list[str], format: str = "AVRO", page: int = 1) -> None:
    """Expect the requests for a schema with versions, listed in pages of one."""
    asked: dict[str, Any] = {"SchemaId": {"SchemaName": name, "RegistryName": "shop"}}
    for number, text in enumerate(texts, 1):
        id = str(uuid.uuid5(uuid.NAMESPACE_URL, text))
        one = {"SchemaVersionId": id, "VersionNumber": number, "Status": "AVAILABLE", "CreatedTime": NOW}
        more = {"NextToken": f"page {number}"} if number < len(texts) else {}
        aws.add_response("list_schema_versions", {"Schemas": [one], **more}, asked)
        asked = asked | {"NextToken": f"page {number}"}
        answer = {"SchemaVersionId": id, "SchemaDefinition": text, "DataFormat": format, "VersionNumber": number}
        aws.add_response("get_schema_version", answer, {"SchemaVersionId": id})


def test_a_topic_gets_the_versions_of_the_schema_of_its_name(aws: Stubber) -> None:
    add_schema(aws, "orders", TEXTS)

    known = glue("shop", region="eu-central-1").learn("orders")

    hexes = [uuid.UUID(id).hex for id in IDS]
    assert known.framing is Framing.GLUE
    assert known.ids == tuple((id, Schema(SchemaFormat.AVRO, text)) for id, text in zip(hexes, TEXTS, strict=True))
    assert [(name, [(one.version, one.id) for one in versions]) for name, versions in known.subjects] == [
        ("orders", [(1, hexes[0]), (2, hexes[1])])
    ]


def test_a_topic_of_nothing_gives_every_schema(aws: Stubber) -> None:
    names = [{"SchemaName": "orders"}, {"SchemaName": "payments"}]
    aws.add_response("list_schemas", {"Schemas": names}, {"RegistryId": {"RegistryName": "shop"}})
    add_schema(aws, "orders", TEXTS[:1])
    add_schema(aws, "payments", ['{"type": "object"}'], "JSON")

    known = glue("shop", region="eu-central-1").learn(None)

    assert [name for name, _ in known.subjects] == ["orders", "payments"]
    assert [schema.format for _, schema in known.ids] == [SchemaFormat.AVRO, SchemaFormat.JSON]


def test_a_schema_can_be_named_in_place_of_the_topic(aws: Stubber) -> None:
    add_schema(aws, "shop-orders", TEXTS[:1])
    assert len(glue("shop", region="eu-central-1", schema_name="shop-orders").learn("orders").ids) == 1


def test_a_version_that_aws_refused_is_passed_over(aws: Stubber) -> None:
    one = {"SchemaVersionId": IDS[0], "VersionNumber": 1, "Status": "FAILURE", "CreatedTime": NOW}
    aws.add_response("list_schema_versions", {"Schemas": [one]})
    assert glue("shop", region="eu-central-1").learn("orders").ids == ()


def test_without_a_region_there_is_nothing_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with pytest.raises(OptionError, match="AWS cannot be asked; found NoRegionError"):
        glue("shop").learn("orders")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("EntityNotFoundException", SchemaNotFoundError),
        ("AccessDeniedException", SchemaAccessError),
        ("InternalServiceException", SchemaRegistryError),
    ],
)
def test_what_aws_answers_is_an_error_of_its_kind_and_not_quoted(
    code: str, kind: type[SchemaRegistryError], aws: Stubber
) -> None:
    aws.add_client_error("list_schema_versions", code, "token c4nary")
    with pytest.raises(kind, match="glue registry shop: ") as caught:
        glue("shop", region="eu-central-1").learn("orders")
    assert "c4nary" not in str(caught.value)
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)
