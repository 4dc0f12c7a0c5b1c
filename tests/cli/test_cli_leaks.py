"""Canary secrets go into every command; nothing that it prints, logs or pickles may hold one."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from canaries import ACCESS_KEY, CANARIES, QUERY, everything_logged, leaks, quoting_server, refusing_server, shown

import segreader
from segreader.cli.main import main
from segreader.errors import SegreaderError
from segreader.storage.retry import Clock


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """What all loggers say."""
    with everything_logged() as lines:
        yield lines


SIGNED = f"https://127.0.0.1:9/b/00000000000000000000.log?{QUERY}"
WITH_PASSWORD = f"https://u:{CANARIES['password']}@127.0.0.1:9/b/00000000000000000000.log"
KEYS_IN_LOCATION = f"s3://{ACCESS_KEY}:{CANARIES['secret']}@bucket/prefix"
LOCATIONS = [SIGNED, WITH_PASSWORD, KEYS_IN_LOCATION, f"nosuch://h/p?{QUERY}", f"/none/0.log?{QUERY}"]


@pytest.mark.parametrize("debug", [[], ["--debug"]], ids=["plain", "debug"])
@pytest.mark.parametrize("location", LOCATIONS, ids=["signed", "password", "keys", "scheme", "path"])
@pytest.mark.parametrize("verb", ["cat", "dump", "inspect", "ls", "offsets", "plan", "verify", "version"])
def test_a_command_that_is_given_a_secret_prints_none(
    verb: str,
    location: str,
    debug: list[str],
    logged: list[str],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("key", "secret", "token"):
        monkeypatch.setenv(f"SEGREADER_STORAGE_{name}", CANARIES[name])
    for name, value in (
        ("ACCESS_KEY_ID", "key"),
        ("SECRET_ACCESS_KEY", "secret"),
        ("SESSION_TOKEN", "token"),
    ):
        monkeypatch.setenv(f"AWS_{name}", CANARIES[value])
    monkeypatch.setattr(Clock, "wait", lambda _, stopped, __: stopped.is_set())  # tries follow each other at once
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", f"AccountName=a;AccountKey={CANARIES['account_key']}")
    assert main([verb, *debug, location]) != 0
    out = capfd.readouterr()
    assert leaks(out.out + out.err) == []
    assert leaks("\n".join(logged)) == []


@pytest.mark.parametrize("debug", [[], ["--debug"]], ids=["plain", "debug"])
def test_storage_options_and_lists_of_urls_are_not_printed(
    debug: list[str], logged: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    urls = tmp_path / "urls.txt"
    urls.write_text(f"{SIGNED}\n{WITH_PASSWORD}\n")
    secret = [f"--storage-option={name}={CANARIES[name]}" for name in ("key", "secret", "token")]
    azure = "connection_string=DefaultEndpointsProtocol=http;AccountName=a;BlobEndpoint={}/a;AccountKey={}"
    with refusing_server() as refusing:
        for arguments in (
            [f"@{urls}", "--stats"],
            [f"{refusing}/b/0.log?{QUERY}", "--stats"],
            ["s3://bucket/p", *secret, f"--storage-option=endpoint_url={refusing}"],
            ["s3://bucket/p", *secret, "--storage-option", CANARIES["secret"]],
            ["s3://bucket/p", *secret, f"--storage-option=endpoint_url=http://u:{CANARIES['password']}@h"],
            ["az://c/p", f"--storage-option={azure.format(refusing, CANARIES['account_key'])}"],
            ["az://c/p", *secret, f"--storage-option=sas_token=sv=1&sig={CANARIES['sas']}"],
        ):
            assert main(["cat", *debug, *arguments]) != 0
    out = capfd.readouterr()
    assert leaks(out.out + out.err) == []
    assert leaks("\n".join(logged)) == []


@pytest.mark.parametrize(
    ("location", "status", "code", "exit_code", "said"),
    [
        (
            "s3://typo/p",
            404,
            "NoSuchBucket",
            3,
            "s3://typo/p/: there is no such bucket: typo; found status 404 NoSuchBucket",
        ),
        ("s3://bucket/p", 403, "AccessDenied", 3, "s3://bucket/p/: the store refuses; found status 403 AccessDenied"),
        ("s3://bucket/p", 400, "ExpiredToken", 3, "the store refuses; found status 400 ExpiredToken"),
        (
            "az://typo/p",
            404,
            "ContainerNotFound",
            3,
            "there is no such container: typo; found status 404 ContainerNotFound",
        ),
        ("az://c/p", 400, "InvalidUri", 4, "the store does not take the request; found status 400 InvalidUri"),
        ("gs://typo/p", 404, "", 3, "gs://typo/p/: there is no such bucket: typo"),
        ("gs://bucket/p", 400, "", 4, "the store does not take the request; found status 400"),
    ],
)
@pytest.mark.parametrize("verb", ["cat", "ls"])
def test_a_store_that_quotes_secrets_in_its_errors_is_not_quoted(
    verb: str, location: str, status: int, code: str, exit_code: int, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without a handler for logs: what a client logs of an error goes to stderr then."""
    pytest.importorskip({"s3": "s3fs", "az": "adlfs", "gs": "gcsfs"}[location[:2]])
    with quoting_server(status, code, is_json=location.startswith("gs")) as url:
        given = {
            "s3": {"endpoint_url": url, **{name: CANARIES[name] for name in ("key", "secret", "token")}},
            "az": {"connection_string": f"AccountName=a;BlobEndpoint={url}/a;AccountKey={CANARIES['account_key']}"},
            "gs": {"endpoint_url": url, "token": "anon"},
        }[location[:2]]
        assert (
            main([verb, location, *(f"--storage-option={name}={value}" for name, value in given.items())]) == exit_code
        )
    out = capfd.readouterr()
    assert said in out.err
    assert "Retention" not in out.err
    assert leaks(out.out + out.err) == []


def test_a_usage_error_does_not_quote_a_secret(capfd: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ["cat", "x", SIGNED],
        ["cat", "--offsets", SIGNED, "."],
        ["cat", "--limit", SIGNED, "."],
        [SIGNED],
    ):
        assert main(arguments) == 2
    out = capfd.readouterr()
    assert leaks(out.out + out.err) == []


def test_a_scan_and_its_plan_hold_no_secret() -> None:
    for location in LOCATIONS[:4]:
        try:
            found = segreader.scan(location)
            out = repr(found) + repr(vars(found)) + repr(pickle.dumps(found.plan()))
        except SegreaderError as error:
            out = shown(error)
        assert leaks(out) == []
