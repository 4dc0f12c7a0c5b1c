"""Places by name as the location of Spark's reads: what becomes an option, and which secrets may."""

from __future__ import annotations

from pathlib import Path

import pytest

from segreader.errors import OptionError
from segreader.spark.options import SparkOptions, parse_options, parse_stream_options

HUSH = "hush-31c7"


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "segreader.toml"
    file.write_text(
        """
        [prod]
        location = "s3://logs/tiered"
        rsm_config = "/etc/server.properties"
        layout = "aiven"
        storage_options = {region = "eu-west-1", requester_pays = true, key = "env:P_KEY", secret = "env:P_SECRET"}

        [live]
        location = "s3://logs/tiered"
        bootstrap_servers = "b1:9092,b2:9092"
        broker_options = {"security.protocol" = "SASL_SSL", "sasl.mechanism" = "PLAIN", "sasl.password" = "env:P_PASS"}

        [cluster]
        location = "kafka://b1:9092"

        [file]
        location = "s3://logs/tiered"
        storage_options.token = "@token.txt"
        """
    )
    monkeypatch.setenv("SEGREADER_CONFIG", str(file))
    monkeypatch.setenv("P_SECRET", HUSH)
    return file


def parse(**options: str) -> SparkOptions:
    return parse_options(options)


@pytest.mark.parametrize("name", ["location", "path", "LOCATION"])
def test_a_place_is_a_location_and_its_secrets_stay_references(name: str) -> None:
    options = parse_options({name: "prod", "subscribe": "orders"})

    assert options.locations == ("s3://logs/tiered",)
    assert (options.catalog.layout, options.catalog.rsm_config) == ("aiven", "/etc/server.properties")
    assert options.storage == {
        "region": "eu-west-1",
        "requester_pays": "True",
        "key": "env:P_KEY",
        "secret": "env:P_SECRET",
    }
    assert HUSH not in repr(options)


def test_a_topic_and_a_partition_may_follow_the_name() -> None:
    assert parse(location="prod:orders").choice.topics == ("orders",)
    assert parse(location="prod:orders/3").choice.assigned == {"orders": (3,)}
    assert parse_stream_options({"location": "prod:orders"}).choice.topics == ("orders",)
    with pytest.raises(OptionError, match="the topic is named twice"):
        parse(location="prod:orders", subscribe="clicks")


def test_options_win_over_the_place() -> None:
    options = parse(location="prod", subscribe="a", layout="local-tiered", **{"storage.aws_region": "us-east-1"})

    assert options.catalog.layout == "local-tiered"
    assert options.storage == {
        "region": "us-east-1",
        "requester_pays": "True",
        "key": "env:P_KEY",
        "secret": "env:P_SECRET",
    }


def test_a_provider_replaces_the_credentials_of_the_place() -> None:
    options = parse(location="prod", subscribe="a", credentials="env:OTHER")
    assert options.storage == {"region": "eu-west-1", "requester_pays": "True"}


def test_brokers_of_a_place_are_asked() -> None:
    options = parse(location="live", subscribe="a")
    assert options.brokers is not None
    assert options.brokers.servers == "b1:9092,b2:9092"
    assert options.brokers.settings["sasl.password"] == "env:P_PASS"

    cluster = parse(location="cluster", subscribe="a")
    assert cluster.locations == ()
    assert cluster.brokers is not None
    assert cluster.brokers.servers == "b1:9092"


def test_other_brokers_are_not_sent_what_is_for_those_of_the_place() -> None:
    options = parse(location="live", subscribe="a", **{"kafka.bootstrap.servers": "other:9092"})
    assert options.brokers is not None
    assert (options.brokers.servers, dict(options.brokers.settings)) == ("other:9092", {})


def test_a_secret_of_a_file_is_refused_with_what_to_write() -> None:
    with pytest.raises(OptionError) as caught:
        parse(location="file", subscribe="a")
    said = str(caught.value)
    assert "[file] storage_options.token: other processes cannot have this secret" in said
    assert "expected env:VARIABLE" in said
    assert parse(location="file", subscribe="a", credentials="env:OTHER").storage == {}


def test_what_is_no_place_is_a_location_as_before() -> None:
    assert parse(location="prod2", subscribe="a").locations == ("prod2",)
    assert parse(location='["prod","s3://b"]', subscribe="a").locations == ("prod", "s3://b")
