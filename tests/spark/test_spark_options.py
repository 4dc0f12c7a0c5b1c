from __future__ import annotations

import pickle
import time

import pytest

from segreader.errors import OptionError
from segreader.isolation import IsolationLevel
from segreader.spark.option_values import EARLIEST, compile_pattern, parse_size
from segreader.spark.options import SparkOptions, parse_options, require_batch

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
    assert (options.starting_times, options.ending_times, options.starts_at_latest) == (None, None, False)
    assert options.fail_on_data_loss is True
    assert options.raw_columns is False
    assert options.read_options.check_crcs is True
    assert options.credentials == "default"
    assert options.catalog.layout is None
    assert (options.min_partitions, options.max_records_per_partition) == (None, None)
    assert options.split_bytes == 128 << 20
    assert options.read_options.batch_bytes == 4 << 20
    assert options.read_options.batch_rows == 65536


def test_names_are_the_same_in_any_case() -> None:
    given = {"LOCATION": "/data", "subscribepattern": "^or.*", "IncludeHeaders": "TRUE", "SPLITBYTES": "1m"}
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
        ("startTimestamp", "startingTimestamp"),
        ("minPartition", "minPartitions"),
        ("credential", "credentials"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_name(name: str, nearest: str) -> None:
    with pytest.raises(OptionError, match=rf"unknown option {name.lower()}\. Did you mean {nearest}\?"):
        parse_options(PLACE | {name: "1"})


def test_an_option_like_no_other_is_refused_with_all_names() -> None:
    with pytest.raises(OptionError, match=r"unknown option zzz\. There are location, path, subscribe"):
        parse(zzz="1")


def test_what_spark_adds_by_itself_is_passed_over() -> None:
    parse(**{"owner": "me", "option.location": "/data", "paths": ""})


def test_a_table_of_a_catalog_is_refused_with_the_view_to_make() -> None:
    with pytest.raises(OptionError, match=r"carries no options.*CREATE TEMPORARY VIEW name USING segreader OPTIONS"):
        parse(owner="me", provider="segreader")


@pytest.mark.parametrize(
    "name",
    [
        "kafka.sasl.jaas.config",
        "kafka.ssl.keystore.password",
        "fs.s3a.secret.key",
        "azure.account-key",
        "sasToken",
        "storage.key",
        "storage.secret",
        "storage.connection_string",
        "storage.sas_key",
        "storage.service_account_key",
    ],
)
def test_a_secret_is_refused_and_not_shown(name: str) -> None:
    with pytest.raises(OptionError, match="looks like a secret") as caught:
        parse(**{name: "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_options_of_a_consumer_have_no_effect_and_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    consumer = {
        "kafka.group.id": "g",
        "groupIdPrefix": "g",
        "kafkaConsumer.pollTimeoutMs": "1",
        "fetchOffset.numRetries": "1",
        "kafka.security.protocol": "SSL",
    }
    with caplog.at_level("INFO", logger="segreader"):
        parse(**consumer)

    (record,) = caplog.records
    assert all(name.lower() in record.getMessage() for name in consumer)


@pytest.mark.parametrize("name", ["kafka.auto.offset.reset", "kafka.key.deserializer"])
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


def test_location_and_path_must_agree() -> None:
    with pytest.raises(OptionError, match="location and path name different places"):
        parse(path="/other")


def test_several_locations_are_a_json_list() -> None:
    assert parse_options({"paths": '["/a","/b"]', "subscribe": "a"}).locations == ("/a", "/b")
    assert parse(location='["/a", "s3://b/c"]').location == "/a, s3://b/c"


@pytest.mark.parametrize("text", ["[]", '["/a","/a"]', '["/a",1]', '[""]', "[/a]"])
def test_a_list_that_names_no_locations_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="location"):
        parse(location=text)


@pytest.mark.parametrize("location", ["https://b.s3.amazonaws.com/a?X-Amz-Signature=hunter2", "s3://key:hunter2@b/c"])
def test_a_location_with_a_credential_is_refused_and_the_credential_not_shown(location: str) -> None:
    with pytest.raises(OptionError, match="Spark shows options in its UI") as caught:
        parse(location=location)
    assert "hunter2" not in str(caught.value)


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


def test_booleans_are_true_or_false() -> None:
    assert parse().fail_on_data_loss
    assert not parse(failOnDataLoss="False").fail_on_data_loss
    with pytest.raises(OptionError, match="includeHeaders is neither true nor false"):
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


def test_a_timestamp_weighs_more_than_timestamps_of_partitions_and_these_more_than_offsets() -> None:
    offsets = {"startingOffsets": '{"orders":{"0":9}}', "endingOffsets": '{"orders":{"0":8}}'}
    each = {"startingOffsetsByTimestamp": '{"orders":{"0":5}}', "endingOffsetsByTimestamp": '{"orders":{"0":6}}'}
    by_partition = parse(**offsets, **each)
    by_one = parse(**offsets, **each, startingTimestamp="7", endingTimestamp="8")

    assert (by_partition.starting_times, by_partition.ending_times) == ({"orders": {0: 5}}, {"orders": {0: 6}})
    assert (by_one.starting_times, by_one.ending_times) == (7, 8)
    for options in (by_partition, by_one):
        assert (options.starting_offsets, options.ending_offsets) == (None, None)


@pytest.mark.parametrize("name", ["startingTimestamp", "endingTimestamp"])
@pytest.mark.parametrize("text", ["", "-1", "2026-13-01T00:00Z", "1.5", "9223372036854775808", "9" * 5000, "soon"])
def test_a_timestamp_that_is_no_time_is_refused(name: str, text: str) -> None:
    with pytest.raises(OptionError, match=f"{name} is not a time.*expected 2026-11-01T00:00Z"):
        parse(**{name: text})


def test_a_timestamp_is_milliseconds_or_a_time_with_its_zone_or_one_before_now() -> None:
    times = {"startingTimestamp": "2026-11-01T00:00Z", "endingTimestamp": "2026-11-01T02:00+01:00"}
    day = 86_400_000
    parsed, ago = parse(**times), parse(startingTimestamp="-1d").starting_times

    assert (parsed.starting_times, parsed.ending_times) == (1793491200000, 1793494800000)
    assert isinstance(ago, int)
    assert abs(time.time() * 1000 - day - ago) < 60_000


def test_a_clock_time_needs_a_zone_and_is_not_before_1970() -> None:
    with pytest.raises(
        OptionError, match=r"startingTimestamp is a time without a time zone.*Write 2026-11-01T00:00:00Z"
    ):
        parse(startingTimestamp="2026-11-01T00:00")
    with pytest.raises(OptionError, match="endingTimestamp is before 1970"):
        parse(endingTimestamp="1969-12-31T00:00Z")


def test_offsets_of_some_partitions_need_a_default_for_the_others() -> None:
    some = {"assign": '{"orders":[0,1],"audit":[0]}', "startingOffsets": '{"orders":{"1":5}}', "subscribe": ""}
    parsed = parse(**some, startingOffsetsDefault="earliest")

    assert (parsed.starting_offsets, parsed.starting_offsets_default) == ({"orders": {1: 5}}, EARLIEST)
    with pytest.raises(OptionError, match=r"does not name the topic audit\. startingOffsetsDefault=earliest reads"):
        parse(**some)
    with pytest.raises(
        OptionError, match=r"exactly the assigned partitions of orders.*startingOffsetsDefault=earliest"
    ):
        parse(assign='{"orders":[0,1]}', startingOffsets='{"orders":{"1":5}}', subscribe="")
    with pytest.raises(OptionError, match=r"only assigned partitions of orders; found \[7\]"):
        parse(**some | {"startingOffsets": '{"orders":{"7":5}}'}, startingOffsetsDefault="earliest")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsetsDefault": "latest", "startingOffsets": '{"orders":{"0":1}}'}, "is neither earliest; found"),
        ({"startingOffsetsDefault": "earliest"}, "it names none; found startingOffsets=earliest"),
        ({"startingOffsetsDefault": "earliest", "startingOffsets": "earliest"}, "it names none"),
    ],
)
def test_a_default_of_starting_offsets_is_earliest_and_needs_offsets(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse(**options)


def test_the_strategy_for_times_without_a_record_is_error_or_latest() -> None:
    strategy = "startingOffsetsByTimestampStrategy"
    assert parse(startingTimestamp="1").starts_at_latest is False
    assert parse(startingTimestamp="1", **{strategy: "LATEST"}).starts_at_latest is True
    assert parse(**{strategy: "latest"}).starts_at_latest is False
    with pytest.raises(OptionError, match=f"{strategy} is neither error nor latest"):
        parse(**{strategy: "earliest"})


def test_a_time_beyond_its_end_is_refused() -> None:
    with pytest.raises(OptionError, match="startingTimestamp 9 is beyond endingTimestamp 8"):
        parse(startingTimestamp="9", endingTimestamp="8")
    with pytest.raises(
        OptionError, match="startingOffsetsByTimestamp 9 of orders-0 is beyond endingOffsetsByTimestamp 8"
    ):
        parse(startingOffsetsByTimestamp='{"orders":{"0":9}}', endingOffsetsByTimestamp='{"orders":{"0":8}}')


def test_a_batch_read_cannot_start_at_the_end() -> None:
    for text in ("latest", '{"orders":{"0":-1}}'):
        with pytest.raises(OptionError, match="startingOffsets cannot be latest, or -1, in a batch read"):
            require_batch(parse(startingOffsets=text))
    require_batch(parse(startingTimestamp="1", startingOffsetsByTimestampStrategy="latest"))


def test_limits_of_triggers_are_checked_at_load_and_have_no_effect_in_a_batch(caplog: pytest.LogCaptureFixture) -> None:
    options = parse(maxOffsetsPerTrigger="5", minOffsetsPerTrigger="1", maxBytesPerTrigger="1m", maxTriggerDelay="15m")
    require_batch(options)

    assert "maxOffsetsPerTrigger, minOffsetsPerTrigger, maxBytesPerTrigger, maxTriggerDelay" in caplog.text
    for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxBytesPerTrigger", "maxTriggerDelay"):
        with pytest.raises(OptionError, match=name):
            parse(**{name: "soon"})


@pytest.mark.parametrize("name", ["minPartitions", "maxRecordsPerPartition"])
def test_counts_are_numbers_above_zero(name: str) -> None:
    assert {parse(minPartitions="7").min_partitions, parse(maxRecordsPerPartition="7").max_records_per_partition} == {7}
    for text in ("0", "-1", "ten", "", "1.0"):
        with pytest.raises(OptionError, match=f"{name} is not a number above zero"):
            parse(**{name: text})


def test_a_layout_may_be_told_or_left_to_the_names() -> None:
    assert parse(layout="local-tiered").catalog.layout == "local-tiered"
    assert parse(layout="auto").catalog.layout is None


def test_checksums_are_left_out_on_request_only() -> None:
    assert parse(verify="crc").read_options.check_crcs is True
    assert parse(verify="None").read_options.check_crcs is False
    with pytest.raises(OptionError, match="verify is neither crc nor none"):
        parse(verify="false")


def test_settings_of_the_store_are_known_by_all_their_names() -> None:
    options = parse_options({"location": "s3://b/a", "subscribe": "o", "storage.REGION": "r", "storage.endpoint": "e"})
    assert options.storage == {"region": "r", "endpoint_url": "e"}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("storage.regoin", "x", "unknown storage option.*Did you mean 'region'"),
        ("storage.project", "x", "project is for Google Cloud Storage, and this is read from S3"),
        ("storage.endpoint", "https://key:hunter2@minio", "storage.endpoint holds a credential"),
    ],
)
def test_a_setting_that_the_store_cannot_have_is_refused(name: str, text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        parse_options({"location": "s3://b/a", "subscribe": "o", name: text})
    assert "hunter2" not in str(caught.value)


def test_a_read_budget_is_bytes_in_a_second() -> None:
    assert parse(readBudget="8m").read_budget == 8 << 20
