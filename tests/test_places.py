"""Places by name: the file, its secrets, and what reads by them."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from typed_orders import REMOTE, SAVED

import segreader
from segreader.errors import ObjectNotFoundError, OptionError
from segreader.places import Place, SecretReference, at_places, config_file, near_name, place_named, places
from segreader.schemas.schema_uses import survey
from segreader.storage.signed_url import Secret
from segreader.tables.dataset import open_dataset
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered

HUSH = "hush-8c1f"
"""A secret that no text of these tests may show."""

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes the file of places, which this process then has."""

    def written(text: str) -> Path:
        file = tmp_path / "config" / "segreader.toml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        return file

    for name in ("SEGREADER_CONFIG", "SEGREADER_AT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return written


@pytest.fixture
def tiered(tmp_path: Path) -> Path:
    """Two topics, one with two partitions."""
    root = tmp_path / "tiered"
    write_local_tiered(root, "orders", [SegmentBuilder(0).batch([b"a", b"b"])], partition=0)
    write_local_tiered(root, "orders", [SegmentBuilder(0).batch([b"c"])], partition=1)
    write_local_tiered(root, "clicks", [SegmentBuilder(0).batch([b"d"])])
    return root


def place(text: str = "prod") -> Place:
    found = place_named(text)
    assert found is not None
    return found[0]


def refused(text: str = "prod") -> str:
    with pytest.raises(OptionError) as caught:
        place_named(text)
    return str(caught.value)


def values(scan: segreader.Scan | segreader.LiveScan) -> list[bytes | None]:
    return [record.value for record in scan.records()]


def test_a_section_names_a_place_a_topic_of_it_and_a_partition(write: Write) -> None:
    write('[prod]\nlocation = "s3://logs/tiered"\n[eu-west_1]\nlocation = "/mnt/eu"\n')

    rests = {
        text: None if (found := place_named(text)) is None else found[1] for text in ("prod", "prod:a", "prod:a.b/3")
    }
    assert rests == {"prod": None, "prod:a": "a", "prod:a.b/3": "a.b/3"}
    assert [(one.name, one.location) for one in places()] == [("prod", "s3://logs/tiered"), ("eu-west_1", "/mnt/eu")]


@pytest.mark.parametrize(
    "text", ["dev", "./prod", "/prod", "prod/", "prod:", "prod:a/b", "prod:a:b", "prod://a", "PROD", "", "-", "@prod"]
)
def test_what_is_no_section_names_no_place(write: Write, text: str) -> None:
    write('[prod]\nlocation = "/mnt/tiered"\n')
    assert place_named(text) is None


def test_a_url_is_no_place_even_if_its_scheme_is_a_section(write: Write) -> None:
    write('[s3]\nlocation = "/mnt/tiered"\n[file]\nlocation = "/mnt/tiered"\n')
    assert place_named("s3://logs") is None
    assert place_named("file:/mnt") is None


def test_without_a_file_nothing_is_a_place(write: Write) -> None:
    assert place_named("prod") is None
    assert places() == []


def test_the_file_is_found_as_its_documentation_says(tmp_path: Path) -> None:
    assert config_file({"HOME": "/home/a"}) == Path("/home/a/.config/segreader.toml")
    assert config_file({"HOME": "/home/a", "XDG_CONFIG_HOME": "/x"}) == Path("/x/segreader.toml")
    assert config_file({"HOME": "/home/a", "SEGREADER_CONFIG": "/y/z.toml"}) == Path("/y/z.toml")
    with pytest.raises(OptionError, match="the file that SEGREADER_CONFIG names is not there"):
        place_named("prod", {"SEGREADER_CONFIG": str(tmp_path / "none.toml")})


BAD: Mapping[str, tuple[str, str]] = {
    "a misspelt key": ('[prod]\nlocaton = "/a"', "[prod]: unknown key 'locaton'. Did you mean location?"),
    "a key like no other": ('[prod]\nzzz = "/a"', "[prod]: unknown key 'zzz', expected location, rsm_config,"),
    "a number for a text": ("[prod]\nlocation = 3", "[prod]: location is not text, or is empty; found int"),
    "an empty text": ('[prod]\nlocation = " "', "[prod]: location is not text, or is empty"),
    "a key in no section": ('location = "/a"', "segreader.toml: 'location' is in no section. Begin the section"),
    "a section of spaces": ('["a b"]\nlocation = "/a"', "segreader.toml: not a place's name; found [a b]"),
    "no location": ('[prod]\nlayout = "aiven"', "[prod]: the place has no location. Write location = "),
    "two sources of schemas": (
        '[prod]\nlocation = "/a"\nschemas = "s.json"\nschema_registry = "https://r"',
        "[prod]: schemas and schema_registry both say",
    ),
    "options that are no table": (
        '[prod]\nlocation = "/a"\nstorage_options = "region"',
        "storage_options is not a table",
    ),
    "a misspelt option": (
        '[prod]\nlocation = "s3://a"\nstorage_options.regoin = "eu"',
        "[prod] storage_options.regoin: unknown storage option; found 'regoin'. Did you mean 'region'?",
    ),
    "an option of another type": (
        '[prod]\nlocation = "s3://a"\nstorage_options.anon = "perhaps"',
        "storage_options.anon: anon is neither true nor false",
    ),
    "an option by two names": (
        '[prod]\nlocation = "s3://a"\nstorage_options = {region = "a", aws_region = "b"}',
        "the storage option region is given twice",
    ),
    "a table of a store that fsspec knows": (
        '[prod]\nlocation = "ftp://a"\nstorage_options.client_kwargs = {a = 1}',
        "storage_options.client_kwargs: a table in place of a value",
    ),
    "a reference to nothing": ('[prod]\nlocation = "s3://a"\nstorage_options.secret = "env:"', "nothing follows env:"),
    "brokers' options without brokers": (
        '[prod]\nlocation = "/a"\nbroker_options."client.id" = "me"',
        "[prod]: broker_options are of no brokers",
    ),
    "no TOML": ("[prod\nlocation=", "segreader.toml: the file of places is not TOML; found line 1, column 6"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_is_an_error_with_file_section_and_key(write: Write, case: str) -> None:
    text, message = BAD[case]
    file = write(text)
    said = refused()
    assert str(file) in said
    assert message in said


CLEAR: Mapping[str, tuple[str, str]] = {
    "a secret key": (f'location = "s3://a"\nstorage_options = {{key = "AK", secret = "{HUSH}"}}', "secret"),
    "by its other name": (f'location = "s3://a"\nstorage_options.secret_access_key = "{HUSH}"', "secret_access_key"),
    "an account key": (f'location = "az://a"\nstorage_options.account_key = "{HUSH}"', "account_key"),
    "an option of a store that fsspec knows": (
        f'location = "ftp://a"\nstorage_options.password = "{HUSH}"',
        "password",
    ),
    "a client's password": (
        f'bootstrap_servers = "b:9092"\nbroker_options.sasl.password = "{HUSH}"',
        "sasl.password",
    ),
    "a client's JAAS": (
        f'bootstrap_servers = "b:9092"\nbroker_options."sasl.jaas.config" = "{HUSH}"',
        "sasl.jaas.config",
    ),
}


@pytest.mark.parametrize("case", CLEAR)
def test_a_secret_in_plain_text_is_refused_with_what_to_write(write: Write, case: str) -> None:
    text, name = CLEAR[case]
    write(f"[prod]\n{text}\n")
    said = refused()
    assert "a secret in plain text" in said
    assert f'{name} = "env:VARIABLE", "@FILE" or "cmd:COMMAND"' in said
    assert HUSH not in said


@pytest.mark.parametrize(
    "line",
    [
        f'location = "https://host/a.log?X-Amz-Signature={HUSH}"',
        f'location = "s3://AK:{HUSH}@bucket/a"',
        f'location = "/a"\nschema_registry = "https://user:{HUSH}@registry"',
        f'location = "kafka://user:{HUSH}@broker:9092"',
        f'bootstrap_servers = "broker:9092,user:{HUSH}@broker:9092"',
    ],
    ids=["signed", "userinfo", "registry", "cluster", "brokers"],
)
def test_a_credential_in_a_url_is_refused(write: Write, line: str) -> None:
    write(f"[prod]\n{line}\n")
    said = refused()
    assert "holds a credential, which no file of places may" in said
    assert HUSH not in said


def test_azures_container_in_a_location_is_no_credential(write: Write) -> None:
    write('[prod]\nlocation = "abfss://logs@account.dfs.core.windows.net/tiered"\n')
    assert place().location == "abfss://logs@account.dfs.core.windows.net/tiered"


def test_secrets_are_read_from_variables_files_and_commands(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(
        '[a]\nlocation = "s3://b"\nstorage_options = {key = "AK", secret = "env:P_SECRET", token = "@token.txt"}\n'
        f"[b]\nlocation = 's3://b'\nstorage_options.token = '''cmd:{sys.executable} -c \"print('{HUSH} 3')\"'''\n"
    )
    (file.parent / "token.txt").write_text(f"{HUSH} 2\n")
    monkeypatch.setenv("P_SECRET", f"{HUSH} 1")

    assert place("a").options() == {"key": "AK", "secret": Secret(f"{HUSH} 1"), "token": Secret(f"{HUSH} 2")}
    assert place("b").options() == {"token": Secret(f"{HUSH} 3")}


def test_a_command_runs_without_a_shell(write: Write, tmp_path: Path) -> None:
    write(f"[prod]\nlocation = 's3://b'\nstorage_options.token = 'cmd:echo $HOME; touch {tmp_path}/made'\n")
    assert place().options() == {"token": Secret(f"$HOME; touch {tmp_path}/made")}
    assert not (tmp_path / "made").exists()


FAILING: Mapping[str, tuple[str, str]] = {
    "no such variable": ("env:SEGREADER_TEST_NO_SUCH", "the variable is not set; found env:SEGREADER_TEST_NO_SUCH"),
    "no such file": ("@none.txt", "the file cannot be read: No such file or directory"),
    "no such program": ("cmd:segreader-no-such-program --key x", "the command cannot be run: No such file"),
    "a code": (f"cmd:sh -c 'echo {HUSH}; echo {HUSH} >&2; exit 3'", "the command ended with 3; found cmd:sh …"),
    "nothing": ("cmd:true", "the secret is empty; found cmd:true"),
    "quotes": ("cmd:echo 'a", "its quotes do not match"),
    "no text": (r"cmd:printf '\\377'", "something that is not text"),
}


@pytest.mark.parametrize("case", FAILING)
def test_a_secret_that_cannot_be_had_is_an_error_that_shows_no_output(write: Write, case: str) -> None:
    reference, message = FAILING[case]
    write(f'[prod]\nlocation = "s3://b"\nstorage_options.token = """{reference}"""\n')
    with pytest.raises(OptionError) as caught:
        place().options()
    assert message in str(caught.value)
    assert "[prod] storage_options.token" in str(caught.value)
    assert HUSH not in str(caught.value)


def test_a_command_that_does_not_end_is_ended(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segreader.places.COMMAND_S", 0.2)
    write('[prod]\nlocation = "s3://b"\nstorage_options.token = "cmd:sleep 600"\n')
    with pytest.raises(OptionError, match=r"the command did not end in 0\.2 s"):
        place().options()


def test_no_secret_is_read_before_it_is_asked_for_nor_shown_nor_pickled(write: Write, tmp_path: Path) -> None:
    write(
        '[prod]\nlocation = "s3://b"\nbootstrap_servers = "b:9092"\n'
        f"storage_options = {{key = 'AKIA-ID', token = 'cmd:sh -c \"touch {tmp_path}/made; echo {HUSH}\"'}}\n"
        'broker_options.sasl.password = "env:SEGREADER_TEST_NO_SUCH"\n'
    )
    known = place()
    made = Secret(HUSH)

    assert not (tmp_path / "made").exists()
    assert HUSH not in repr(known) + str(known) + repr(known.storage_options) + repr(dict(known.broker_options))
    assert known.options() == {"key": "AKIA-ID", "token": made}
    assert "***" in repr(known.options())
    assert pickle.loads(pickle.dumps(known)) == known


def test_what_is_given_wins_and_credentials_of_the_place_are_then_not_read(write: Write) -> None:
    write(
        '[prod]\nlocation = "s3://b"\nlayout = "aiven"\n'
        'storage_options = {region = "eu", key = "AK", secret = "env:SEGREADER_TEST_NO_SUCH"}\n'
    )
    given = {"storage_options": {"aws_access_key_id": "MINE", "secret": "mine"}, "layout": "local-tiered", "topic": "t"}

    assert place().arguments(given) == {
        "location": "s3://b",
        "layout": "local-tiered",
        "topic": "t",
        "storage_options": {"region": "eu", "key": "MINE", "secret": "mine"},
    }
    assert given["layout"] == "local-tiered"


def test_paths_of_the_file_begin_at_its_directory(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/a")
    file = write('[prod]\nlocation = "../tiered"\nrsm_config = "~/server.properties"\nschemas = "/s.json"\n')

    known = place()
    assert known.location == str(file.parent.parent / "tiered")
    assert (known.rsm_config, known.schemas) == ("/home/a/server.properties", "/s.json")


def test_a_name_that_is_nearly_a_place_is_known(write: Write) -> None:
    write('[prod]\nlocation = "/a"\n[staging]\nlocation = "/b"\n')
    assert [near_name(text) for text in ("prd", "stagin:orders", "zzz", "/prod")] == ["prod", "staging", None, None]


def test_a_scan_reads_a_place_its_topic_or_a_partition(write: Write, tiered: Path) -> None:
    write('[prod]\nlocation = "../tiered"\n')

    assert values(segreader.scan("prod")) == [b"d", b"a", b"b", b"c"]
    assert values(segreader.scan("prod:orders")) == [b"a", b"b", b"c"]
    assert values(segreader.scan("prod:orders/1")) == [b"c"]
    assert values(segreader.scan("prod", topic="orders", partitions=[0])) == [b"a", b"b"]
    assert values(segreader.scan(location="prod:orders", offsets="1:")) == [b"b"]
    with pytest.raises(OptionError, match="topic is named twice"):
        segreader.scan("prod:orders", topic="clicks")
    with pytest.raises(ObjectNotFoundError, match="no such place or directory"):
        segreader.scan("prd:orders")


def test_a_section_wins_over_a_directory_of_its_name(
    write: Write, tiered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write('[prod]\nlocation = "../tiered"\n')
    write_local_tiered(tmp_path / "prod", "other", [SegmentBuilder(0).batch([b"z"])])
    monkeypatch.chdir(tmp_path)

    assert values(segreader.scan("prod")) == [b"d", b"a", b"b", b"c"]
    assert values(segreader.scan("./prod")) == [b"z"]


def test_tables_take_places(write: Write, tiered: Path) -> None:
    write('[prod]\nlocation = "../tiered"\n')
    dataset = open_dataset("prod:orders", columns=("partition", "value"))
    assert dataset.to_table().to_pylist()[-1] == {"partition": 1, "value": b"c"}
    dataset.close()


def test_schemas_of_a_place_decode_topics_that_have_some(write: Write, tiered: Path) -> None:
    write(
        f'[typed]\nlocation = "{REMOTE}"\nschemas = "{SAVED}"\n[plain]\nlocation = "../tiered"\nschemas = "{SAVED}"\n'
    )

    row = next(iter(segreader.scan("typed:orders-avro").to_batches())).to_pylist()[0]
    assert isinstance(row["value"], dict)
    assert values(segreader.scan("plain:clicks")) == [b"d"]
    assert survey("typed", topic="orders-avro", schemas=SAVED).uses


def test_a_function_of_a_location_is_given_what_the_place_says(write: Write) -> None:
    write('[prod]\nlocation = "s3://b"\n')

    @at_places
    def called(location: str | None = None, **given: object) -> dict[str, object]:
        return {"location": location, **given}

    assert called("prod:a/2", since=1) == {"location": "s3://b", "topic": "a", "partitions": (2,), "since": 1}
    assert called("s3://c") == {"location": "s3://c"}
    assert called() == {"location": None}


@pytest.mark.parametrize("location", ["prod", "s3://c"])
def test_a_second_argument_by_position_is_refused_with_what_to_write(write: Write, location: str) -> None:
    write('[prod]\nlocation = "s3://b"\n')

    with pytest.raises(TypeError, match=r"scan takes one argument by position, the location: .*topic='orders'"):
        segreader.scan(location, "multi")  # type: ignore[call-arg]


def test_a_reference_shows_the_program_of_its_command_alone() -> None:
    assert str(SecretReference("cmd", f"vault read --token {HUSH}")) == "cmd:vault …"
    assert HUSH not in repr(SecretReference("cmd", f"vault read --token {HUSH}"))
