from __future__ import annotations

import pickle

import pytest

from segreader.errors import OptionError
from segreader.isolation import IsolationLevel
from segreader.spark.options import SparkOptions, compile_pattern, parse_options, parse_size

PLACE = {"location": "/data", "subscribe": "orders"}


def parse(**options: str) -> SparkOptions:
    return parse_options({"location": "/data", "subscribe": "orders"} | options)


def test_the_defaults_are_what_the_documentation_says() -> None:
    options = parse_options(PLACE)

    assert options.location == "/data"
    assert options.choice.topics == ("orders",)
    assert options.starting_offsets is None
    assert options.ending_offsets is None
    assert options.include_headers is False
    assert options.isolation_level is IsolationLevel.READ_COMMITTED
    assert options.split_bytes == 128 << 20
    assert options.batch_bytes == 4 << 20
    assert options.batch_records == 65536


def test_names_are_the_same_in_any_case() -> None:
    given = {"LOCATION": "/data", "subscribepattern": "or.*", "IncludeHeaders": "TRUE", "SPLITBYTES": "1m"}
    options = parse_options(given)

    assert options.include_headers is True
    assert options.split_bytes == 1 << 20
    assert options.choice.matches("orders")
    assert not options.choice.matches("my-orders")


def test_options_can_be_sent_to_workers() -> None:
    options = parse(startingOffsets='{"orders":{"0":5}}', endingOffsets='{"orders":{"0":9}}')

    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("subscrib", "subscribe"),
        ("startingOffset", "startingOffsets"),
        ("spiltbytes", "splitBytes"),
        ("isolation", "isolationLevel"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_name(name: str, nearest: str) -> None:
    with pytest.raises(OptionError, match=rf"unknown option {name.lower()}\. Did you mean {nearest}\?"):
        parse_options(PLACE | {name: "1"})


def test_an_option_like_no_other_is_refused_with_all_names() -> None:
    with pytest.raises(OptionError, match=r"unknown option zzz\. There are location, path, subscribe"):
        parse(zzz="1")


def test_what_spark_adds_by_itself_is_passed_over() -> None:
    parse(**{"owner": "me", "provider": "segreader", "option.location": "/data", "paths": ""})


@pytest.mark.parametrize(
    "name",
    [
        "startingTimestamp",
        "endingOffsetsByTimestamp",
        "maxOffsetsPerTrigger",
        "minPartitions",
        "tail",
        "credentials",
        "storage.region",
    ],
)
def test_an_option_of_a_later_version_is_refused_as_such(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name} is not in this version of segreader"):
        parse(**{name: "1"})


@pytest.mark.parametrize(
    "name",
    [
        "kafka.sasl.jaas.config",
        "kafka.ssl.keystore.password",
        "fs.s3a.secret.key",
        "azure.account-key",
        "sasToken",
    ],
)
def test_a_secret_is_refused_and_not_shown(name: str) -> None:
    with pytest.raises(OptionError, match="looks like a secret") as caught:
        parse(**{name: "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_options_of_a_consumer_have_no_effect_but_do_not_stop_a_job() -> None:
    parse(
        **{
            "kafka.group.id": "g",
            "groupIdPrefix": "g",
            "kafkaConsumer.pollTimeoutMs": "1",
            "kafka.fetch.min.bytes": "1",
        }
    )


@pytest.mark.parametrize("name", ["kafka.bootstrap.servers", "kafka.auto.offset.reset", "kafka.key.deserializer"])
def test_options_that_ask_for_something_else_are_refused(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name} has no place here"):
        parse(**{name: "x"})


@pytest.mark.parametrize(
    "chosen",
    [
        {"assign": '{"a":[0]}', "subscribe": "a"},
        {"subscribe": "a", "subscribePattern": "a"},
        {"subscribePattern": "a", "assign": '{"a":[0]}'},
    ],
)
def test_topics_are_chosen_in_one_way_only(chosen: dict[str, str]) -> None:
    with pytest.raises(OptionError, match="exclude each other"):
        parse_options({"location": "/data"} | chosen)


def test_a_read_without_topics_says_what_is_missing() -> None:
    with pytest.raises(OptionError, match="subscribe is missing; give one of assign, subscribe, subscribePattern"):
        parse_options({"location": "/data", "subscribe": " "})


def test_several_topics_are_named_with_commas() -> None:
    assert parse(subscribe="a, b,a").choice.topics == ("a", "b")
    with pytest.raises(OptionError, match="names no topic"):
        parse(subscribe=",")


@pytest.mark.parametrize("pattern", [r"\p{Alpha}+", r"\Qa.b\E", "(?<name>a)", "[a-z&&[^b]]", "[[a]b]", "(", "a{2,1}"])
def test_a_pattern_that_java_reads_otherwise_is_refused(pattern: str) -> None:
    with pytest.raises(OptionError, match="Java and Python"):
        compile_pattern(pattern)


@pytest.mark.parametrize("pattern", ["orders", "or.*", "(?i)ORDERS", "[a-z]+", "a|orders", "(?!audit).*"])
def test_a_pattern_that_both_read_alike_is_taken(pattern: str) -> None:
    assert parse_options({"location": "/data", "subscribePattern": pattern}).choice.matches("orders")


def test_a_location_comes_from_load_or_from_an_option() -> None:
    assert parse_options({"path": "/data", "subscribe": "a"}).location == "/data"
    assert parse_options({"path": "/data", "location": "/data", "subscribe": "a"}).location == "/data"


def test_two_locations_are_refused() -> None:
    with pytest.raises(OptionError, match="location and path name different places"):
        parse(path="/other")
    with pytest.raises(OptionError, match="one location at a time"):
        parse_options({"paths": '["/a","/b"]', "subscribe": "a"})
    with pytest.raises(OptionError, match="one location at a time"):
        parse(location='["/a","/b"]')


def test_a_missing_location_is_explained_also_to_users_of_a_catalog() -> None:
    with pytest.raises(OptionError, match=r"location is missing; give .*$"):
        parse_options({"subscribe": "a"})
    with pytest.raises(OptionError, match="CREATE TEMPORARY VIEW"):
        parse_options({})


@pytest.mark.parametrize(
    ("name", "level"), [("isolationLevel", "read_uncommitted"), ("kafka.isolation.level", "READ_UNCOMMITTED")]
)
def test_the_isolation_level_has_two_names(name: str, level: str) -> None:
    assert parse(**{name: level}).isolation_level is IsolationLevel.READ_UNCOMMITTED


def test_isolation_levels_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(OptionError, match="contradict"):
        parse(**{"isolationLevel": "read_committed", "kafka.isolation.level": "read_uncommitted"})
    with pytest.raises(OptionError, match="expected read_committed or read_uncommitted"):
        parse(isolationLevel="serializable")


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("2k", 2048), ("3 MB", 3 << 20), ("1GiB", 1 << 30), ("134217728", 128 << 20)]
)
def test_sizes_are_bytes_in_powers_of_1024(text: str, size: int) -> None:
    assert parse_size(text, "splitBytes") == size


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5m", "m", "1x", "ten"])
def test_what_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="splitBytes is not a size"):
        parse(splitBytes=text)


def test_a_batch_larger_than_spark_can_take_is_refused() -> None:
    with pytest.raises(OptionError, match="batchBytes is too large"):
        parse(batchBytes="257m")


def test_losing_data_silently_is_not_offered() -> None:
    parse(failOnDataLoss="true")
    with pytest.raises(OptionError, match="failOnDataLoss=false"):
        parse(failOnDataLoss="false")
    with pytest.raises(OptionError, match="neither true nor false"):
        parse(includeHeaders="yes")


def test_offsets_must_name_the_topics_that_are_read() -> None:
    with pytest.raises(OptionError, match="not chosen; found audit"):
        parse(startingOffsets='{"orders":{"0":1},"audit":{"0":1}}')
    with pytest.raises(OptionError, match="does not name the topic audit"):
        parse(subscribe="orders,audit", endingOffsets='{"orders":{"0":1}}')


def test_offsets_must_name_exactly_the_assigned_partitions() -> None:
    with pytest.raises(OptionError, match="exactly the assigned partitions of orders"):
        parse_options(
            {"location": "/data", "assign": '{"orders":[0,1]}', "startingOffsets": '{"orders":{"0":1,"2":1}}'}
        )


def test_a_start_beyond_its_end_is_refused() -> None:
    with pytest.raises(OptionError, match="startingOffsets 9 of orders-0 is beyond endingOffsets 8"):
        parse(startingOffsets='{"orders":{"0":9}}', endingOffsets='{"orders":{"0":8}}')
    parse(startingOffsets='{"orders":{"0":-2}}', endingOffsets='{"orders":{"0":8}}')
    parse(startingOffsets='{"orders":{"0":9}}', endingOffsets='{"orders":{"0":-1}}')
