"""The small registry of the tests, judged by confluent-kafka's own client; and ours, judged by a real registry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema as TheirSchema
from confluent_kafka.schema_registry import SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError as TheirError
from confluent_kafka.serialization import MessageField, SerializationContext
from servers.apicurio import apicurio
from servers.process import NotAvailableError
from servers.schema_registry import schema_registry
from typed_orders import HERE, truth

from segreader.errors import SchemaNotFoundError
from segreader.scans import scan
from segreader.schemas import registry
from segreader.testing import ProducerRecord, SegmentBuilder
from segreader.testing.directory import write_local_tiered
from segreader.typed.schema import SchemaSet

AVRO = {one.stem: one.read_text() for one in (HERE / "avro").glob("*.avsc")}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of Apicurio's contract."""
    from servers.pool import skip_or_fail

    try:
        with apicurio(tmp_path_factory.mktemp("apicurio")) as url:
            yield url
    except NotAvailableError as error:
        skip_or_fail("apicurio", error.message)


def use(url: str) -> tuple[SchemaSet, list[Any]]:
    """Register with their client; returns what ours learns, and what theirs reads again."""
    with SchemaRegistryClient({"url": url, "timeout": 60}) as client:
        found = work(client)
    return registry(url).learn("shop"), found


def work(client: SchemaRegistryClient) -> list[Any]:
    """What an application does; returns the id in each value, and whether it was read as it was written."""
    client.register_schema("com.example.Address", TheirSchema(AVRO["address"], "AVRO"))
    named = [SchemaReference("com.example.Address", "com.example.Address", 1)]
    context = SerializationContext("shop", MessageField.VALUE)
    read = AvroDeserializer(client)
    found = []
    for number, (name, references) in enumerate([("order-v1", []), ("order-v2", []), ("order-v3", named)]):
        schema = TheirSchema(AVRO[name], "AVRO", references)
        write = AvroSerializer(client, schema)
        value = truth("orders-avro")[20 * number].value
        data = write(value, context)
        assert data is not None
        found.append((int.from_bytes(data[1:5], "big"), read(data, context) == value))
    assert client.get_versions("shop-value") == [1, 2, 3]
    latest = client.get_latest_version("shop-value")
    assert (latest.version, latest.schema_id) == (3, found[2][0])
    assert client.lookup_schema("shop-value", latest.schema).version == 3
    with pytest.raises(TheirError) as caught:
        client.get_latest_version("nothing-value")
    assert (caught.value.http_status_code, caught.value.error_code) == (404, 40401)
    return found


def check(known: SchemaSet, found: list[Any]) -> None:
    """The schemas are those that values name."""
    assert all(is_equal for _, is_equal in found)
    ((name, versions),) = known.subjects
    assert name == "shop-value"
    assert [one.id for one in versions] == [id for id, _ in found]
    newest = known.schema(versions[-1].id)
    assert newest is not None
    assert [one.name for one in newest.references] == ["com.example.Address"]


def test_their_client_can_work_with_the_registry_of_the_tests() -> None:
    with schema_registry([]) as server:
        check(*use(server.url))
        one = server.versions[-1]
        with SchemaRegistryClient({"url": server.url, "timeout": 60}) as client:
            assert client.get_schema_by_guid(one["guid"]).schema_str == one["schema"]
            assert client.delete_subject("shop-value") == [1, 2, 3]
            assert "shop-value" not in client.get_subjects()
            assert "shop-value" in client.get_subjects(deleted=True)
        assert len(registry(server.url).learn("shop").ids) == 6


@pytest.mark.exhaustive
def test_a_real_registry_is_read_as_that_of_the_tests(real: str) -> None:
    check(*use(real))
    with pytest.raises(SchemaNotFoundError):
        registry(real).learn("nothing")
    with pytest.raises(SchemaNotFoundError):
        registry(real, ids=[4711]).learn("shop")
    with SchemaRegistryClient({"url": real, "timeout": 60}) as client:
        client.delete_subject("shop-value")
    with pytest.raises(SchemaNotFoundError):  # Apicurio lists deleted versions and gives none of them
        registry(real).learn("shop")


@pytest.mark.exhaustive
def test_the_groups_of_apicurio_are_chosen_by_a_header(real: str) -> None:
    with SchemaRegistryClient({"url": real, "timeout": 60}) as client:
        client._rest_client.session.headers["X-Registry-GroupId"] = "shop"
        id = client.register_schema("grouped-value", TheirSchema('"string"', "AVRO"))
    with pytest.raises(SchemaNotFoundError):
        registry(real).learn("grouped")
    known = registry(real, headers={"X-Registry-GroupId": "shop"}).learn("grouped")
    assert known.schema(id) is not None


@pytest.mark.exhaustive
def test_a_topic_is_read_by_the_schemas_of_a_real_registry(real: str, tmp_path: Path) -> None:
    values = [one.value for one in truth("orders-avro") if one.value and "customer" in one.value and one.offset < 10]
    context = SerializationContext("fresh", MessageField.VALUE)
    with SchemaRegistryClient({"url": real, "timeout": 60}) as client:
        write = AvroSerializer(client, AVRO["order-v1"])
        records = [ProducerRecord(value=write(value, context)) for value in values]
    write_local_tiered(tmp_path, "fresh", [SegmentBuilder().batch(records)])
    table = scan(tmp_path, topic="fresh", columns=["value.customer"], value=registry(real)).to_arrow()
    assert [one["customer"] for one in table.column("value").to_pylist()] == [one["customer"] for one in values]
