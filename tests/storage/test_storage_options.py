from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from segreader.errors import OptionError
from segreader.storage.guard import check_url
from segreader.storage.options import (
    NAMES,
    Kind,
    StorageOptions,
    address_policy,
    canonical_name,
    config_files,
    find_storage_options,
    for_adlfs,
    for_gcsfs,
    for_s3fs,
    kind_of,
    parse_storage_option,
    parse_storage_options,
    parse_values,
    revealed,
)
from segreader.storage.signed_url import Secret

CANARY = "c4nary"
DOC = Path(__file__).parents[2] / "docs" / "reference" / "options.md"


def options(location: str, given: Mapping[str, object] | None = None, **environ: str) -> StorageOptions:
    return find_storage_options(location, given, environ=environ, files=())


@pytest.mark.parametrize(
    ("location", "kind"),
    [
        ("s3://b/p", Kind.S3),
        ("S3A://b", Kind.S3),
        ("abfss://c@a.dfs.core.windows.net/p", Kind.AZURE),
        ("az://c/p", Kind.AZURE),
        ("gs://b", Kind.GCS),
        ("https://h/k?sig=x", Kind.HTTP),
        ("/data/a:b", Kind.LOCAL),
        ("file:/data", Kind.LOCAL),
        ("memory://x", Kind.OTHER),
        ("webhdfs://h/x", Kind.OTHER),
    ],
)
def test_the_scheme_tells_what_a_location_is_read_with(location: str, kind: Kind) -> None:
    assert kind_of(location) is kind


def test_s3_options_become_what_s3fs_takes() -> None:
    given = {
        "aws_access_key_id": "a",
        "AWS_SECRET_ACCESS_KEY": Secret("b"),
        "session-token": "c",
        "region": "eu-west-1",
        "endpoint_url": "http://minio.corp:9000",
        "requester_pays": "true",
        "path_style": "true",
        "ca_file": "/ca.pem",
        "anon": "false",
    }
    assert for_s3fs(options("s3://b", given)) == {
        "key": "a",
        "secret": "b",
        "token": "c",
        "anon": False,
        "endpoint_url": "http://minio.corp:9000",
        "requester_pays": True,
        "client_kwargs": {"region_name": "eu-west-1", "verify": "/ca.pem"},
        "config_kwargs": {"s3": {"addressing_style": "path"}},
    }
    assert for_s3fs(options("s3://b")) == {}
    assert for_s3fs(options("s3://b", {"verify": False, "profile": "p"})) == {
        "profile": "p",
        "client_kwargs": {"verify": False},
    }


def test_the_nested_arguments_that_pandas_users_write_are_understood() -> None:
    given = {
        "client_kwargs": {"endpoint_url": "http://h:9000", "region_name": "r", "verify": "/ca.pem"},
        "config_kwargs": {"s3": {"addressing_style": "virtual"}, "signature_version": "s3v4"},
    }
    found = options("s3://b", given)
    assert (found.endpoint_url, found.region, found.ca_file) == ("http://h:9000", "r", "/ca.pem")
    assert found.addressing_style == "virtual"


@pytest.mark.parametrize(
    ("name", "value", "style"),
    [
        ("path_style", True, "path"),
        ("force_path_style", "false", "virtual"),
        ("virtual_hosted_style_request", "true", "virtual"),
        ("aws_virtual_hosted_style_request", False, "path"),
        ("addressing_style", "AUTO", "auto"),
    ],
)
def test_every_spelling_of_path_style_means_what_it_says(name: str, value: object, style: str) -> None:
    assert options("s3://b", {name: value}).addressing_style == style


def test_azure_options_become_what_adlfs_takes() -> None:
    assert for_adlfs(options("az://c", {"account_name": "n", "azure_storage_account_key": "k"})) == {
        "account_name": "n",
        "account_key": "k",
    }
    assert for_adlfs(options("az://c", {"connection_string": "AccountKey=x"})) == {"connection_string": "AccountKey=x"}
    assert for_adlfs(options("az://c", {"anon": True, "account_name": "n"})) == {"account_name": "n", "anon": True}


def test_google_options_become_what_gcsfs_takes() -> None:
    key = {"type": "service_account", "private_key": "x"}
    assert for_gcsfs(options("gs://b", {"token": key, "project": "p"})) == {"token": key, "project": "p"}
    assert for_gcsfs(options("gs://b", {"google_service_account": "/k.json"})) == {"token": "/k.json"}
    assert for_gcsfs(options("gs://b", {"service_account_key": '{"a": 1}'})) == {"token": {"a": 1}}
    assert for_gcsfs(options("gs://b", {"anon": True})) == {"token": "anon"}
    with pytest.raises(OptionError, match="not JSON") as caught:
        for_gcsfs(options("gs://b", {"service_account_key": f"{{{CANARY}"}))
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("location", "given", "why"),
    [
        ("s3://b", {"secert": "x"}, "Did you mean 'secret'"),
        ("s3://b", {"Regoin": "x"}, "Did you mean 'region'"),
        ("s3://b", {"zzzzzz": "x"}, "expected key, secret"),
        ("s3://b", {"account_key": "x"}, "account_key is for Azure, and this is read from S3"),
        ("/data", {"key": "x"}, "key is for S3, and this is read from directories"),
        ("s3://b", {"key": "x"}, "secret is missing"),
        ("s3://b", {"secret": "x"}, "key is missing"),
        ("s3://b", {"key": "x", "aws_access_key_id": "y", "secret": "z"}, "given twice"),
        ("s3://b", {"anon": True, "key": "x", "secret": "y"}, "exclude each other; found key, secret"),
        ("s3://b", {"anon": "maybe"}, "neither true nor false"),
        ("s3://b", {"addressing_style": "vritual"}, "addressing style"),
        ("s3://b", {"region": ""}, "empty"),
        ("s3://b", {"region": 7}, "not text"),
        ("s3://b", {"endpoint_url": "https://u:p@h"}, "holds a credential"),
        ("s3://b", {"allow_hosts": "a,b c"}, "allow_hosts names no host"),
        ("s3://b", {"client_kwargs": {"aws_session": "x"}}, "unknown storage option"),
        ("s3://b", "anon", "storage options must be a mapping; found str"),
        ("s3://b", [("anon", True)], "storage options must be a mapping; found list"),
        ("s3://b", "", "storage options must be a mapping; found str"),
        ("memory://b", "anon", "storage options must be a mapping; found str"),
        ("memory://b", {5: 1}, "names of storage options must be text; found int"),
        ("s3://b", {5: 1}, "names of storage options must be text; found int"),
        ("s3://b", {b"anon": True}, "names of storage options must be text; found bytes"),
        ("s3://b", {"in_flight": True}, "in_flight is not text"),
        ("s3://b", {"in_flight": np.int64(0)}, "in_flight must be a number from 1 to 256; found '0'"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused(location: str, given: dict[str, object], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        revealed(given) if location.startswith("memory:") else options(location, given)


def test_a_number_of_numpy_is_a_count() -> None:
    assert options("s3://b", {"in_flight": np.int64(4)}).in_flight == 4


def test_a_name_that_may_be_a_secret_is_not_shown() -> None:
    for name in ("wJalrXUtnFEMI/K7MDENG", "a" * 5000, "AKIAIOSFODNN7EXAMPLE"):
        with pytest.raises(OptionError) as caught:
            canonical_name(name)
        assert name not in str(caught.value)


def test_a_flag_outweighs_the_environment_and_that_the_files(tmp_path: Path) -> None:
    here, home = tmp_path / "segreader.toml", tmp_path / "config.toml"
    here.write_text('[storage]\nregion = "here"\nendpoint_url = "http://here:1"\n')
    home.write_text(
        '[storage]\nregion = "home"\nendpoint_url = "http://home:1"\nrequester_pays = true\nproject = "p"\n'
    )
    environ = {"SEGREADER_STORAGE_ENDPOINT_URL": "http://environ:1", "SEGREADER_STORAGE_REGION": "environ"}

    found = find_storage_options("s3://b", {"region": "flag"}, environ=environ, files=[here, home])
    assert (found.region, found.endpoint_url, found.requester_pays) == ("flag", "http://environ:1", True)
    assert find_storage_options("s3://b", environ={}, files=[here, home]).region == "here"
    assert find_storage_options("s3://b", environ={}, files=[home]).region == "home"
    assert find_storage_options("s3://b", environ={}, files=[tmp_path / "none.toml"]) == StorageOptions()


def test_credentials_are_never_mixed_of_two_sources(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[storage]\nkey = "file"\nsecret = "file"\ntoken = "file"\nregion = "file"\n')
    environ = {"SEGREADER_STORAGE_KEY": "environ", "SEGREADER_STORAGE_SECRET": "environ"}
    found = find_storage_options("s3://b", environ=environ, files=[file])
    assert (found.key, found.token, found.region) == (Secret("environ"), None, "file")
    found = find_storage_options("s3://b", {"anon": True}, environ=environ, files=[file])
    assert (found.anon, found.key, found.token) == (True, None, None)
    assert find_storage_options("s3://b", {"anon": False}, environ={}, files=[file]).token == Secret("file")
    # Another cloud's credentials are not of this location at all.
    azure = find_storage_options("az://c", environ=environ, files=[file])
    assert azure == StorageOptions()


def test_a_file_says_more_of_some_locations_than_of_others(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("from a file\n")
    file = tmp_path / "c.toml"
    file.write_text(
        """
        [storage]
        region = "general"
        requester_pays = true
        [storage."s3://bucket"]
        region = "bucket"
        [storage."s3://bucket/deep/"]
        key = "env:KEY"
        secret = "@secret.txt"
        """
    )
    find = {"environ": {"KEY": "k"}, "files": [file]}
    deep = find_storage_options("s3://bucket/deep/er", **find)  # type: ignore[arg-type]
    assert (deep.region, deep.requester_pays, deep.key, deep.secret) == (
        "bucket",
        True,
        Secret("k"),
        Secret("from a file"),
    )
    assert find_storage_options("s3://bucket/deeper", **find).key is None  # type: ignore[arg-type]
    assert find_storage_options("s3://bucket2", **find).region == "general"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f'[storage]\nsecret = "{CANARY}', "not TOML"),
        (f'[storage]\nsecert = "{CANARY}"', "Did you mean 'secret'"),
        (f'storage = "{CANARY}"', "not a table"),
        (f'[storage]\n"s3://b" = "{CANARY}"', "no table of options"),
        (f'[storage]\nkey = ["{CANARY}"]', "not text"),
        (f'[storage]\nkey = "@{CANARY}"', "cannot be read"),
        (f'[storage]\nkey = "env:{CANARY}/"', "not set"),
    ],
)
def test_a_bad_file_is_named_and_not_quoted(text: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(text)
    with pytest.raises(OptionError, match=why) as caught:
        find_storage_options("s3://b", environ={}, files=[file])
    assert str(file) in str(caught.value)
    assert CANARY not in str(caught.value)


def test_a_bad_variable_is_named() -> None:
    with pytest.raises(OptionError, match=r"SEGREADER_STORAGE_REGOIN.*Did you mean 'region'"):
        options("s3://b", SEGREADER_STORAGE_REGOIN="x")
    with pytest.raises(OptionError, match="two variables"):
        options("s3://b", SEGREADER_STORAGE_REGION="x", SEGREADER_STORAGE_AWS_REGION="y")
    assert options("s3://b", SEGREADER_STORAGE_REGION="").region is None


def test_an_option_of_the_command_line_may_point_to_a_file_or_a_variable(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("from a file\n")
    environ = {"V": "from a variable"}
    found = parse_storage_options(["key=a=b", f"secret=@{file}", "token=env:V", "key=c=d"], environ)
    assert found == {"key": Secret("c=d"), "secret": Secret("from a file"), "token": Secret("from a variable")}
    assert revealed({**found, "n": 1}) == {"key": "c=d", "secret": "from a file", "token": "from a variable", "n": 1}


@pytest.mark.parametrize(
    "text", [CANARY, f"={CANARY}", "", f"key=@/none/{CANARY}", f"key=env:{CANARY}/", f"{CANARY}=@/none"]
)
def test_a_bad_option_of_the_command_line_is_not_quoted(text: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_storage_option(text, {})
    assert CANARY not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_secrets_are_in_no_form_of_the_options() -> None:
    secret = ["key", "secret", "token", "account_key", "connection_string", "sas_token", "client_secret"]
    secret.append("service_account_key")
    found = StorageOptions(**parse_values({name: f"{CANARY}-{name}" for name in secret}))
    for shown in (repr(found), str(found), repr(pickle.dumps(found)), f"{found}"):
        assert CANARY not in shown
    assert sum(isinstance(getattr(found, each.name), Secret) for each in fields(found)) == 8


def test_hosts_are_allowed_by_options() -> None:
    policy = address_policy(
        options("https://h/k", {"allow_hosts": "minio.corp, http://10.0.0.5:9000", "allow_private": "true"})
    )
    check_url("https://x.minio.corp/k", policy)
    check_url("http://10.0.0.5:9000/k", policy)
    assert policy.allow_private
    assert address_policy(options("s3://b", {"endpoint_url": "http://h:1"})).is_endpoint("http://h:1/b/k")
    assert not address_policy(StorageOptions()).allow_http


def test_the_files_are_those_of_the_directory_and_of_the_user() -> None:
    assert config_files({"HOME": "/home/u"}) == [
        Path("segreader.toml"),
        Path("/home/u/.config/segreader/config.toml"),
    ]
    assert config_files({"XDG_CONFIG_HOME": "/x"})[1] == Path("/x/segreader/config.toml")


def test_every_field_has_a_name_and_every_name_stands_in_the_doc() -> None:
    assert {each.name for each in fields(StorageOptions)} == set(NAMES.values())
    doc = DOC.read_text()
    assert [name for name in NAMES if f"`{name}`" not in doc] == []
