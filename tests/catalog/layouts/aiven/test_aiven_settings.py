from __future__ import annotations

import contextlib
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segreader.catalog.layouts.aiven.settings import RsmConfig, parse_properties
from segreader.errors import OptionError, StorageError
from segreader.storage.options import find_storage_options
from segreader.storage.signed_url import Secret

PLUGIN = "io.aiven.kafka.tieredstorage.storage"


def load(tmp_path: Path, text: str, prefix: str = "") -> RsmConfig:
    path = tmp_path / "server.properties"
    path.write_text("".join(f"{prefix}{line}\n" for line in text.strip().splitlines()), encoding="latin-1")
    return RsmConfig.load(path)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=b", {"a": "b"}),
        ("a = b", {"a": "b"}),
        ("a:b\nc   d", {"a": "b", "c": "d"}),
        ("  a=b  ", {"a": "b  "}),
        ("# a=b\n! c=d\n  # e=f\n\n", {}),
        ("a=b\\\n   c\\\n#d", {"a": "bc#d"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\r\nc=d\re=f", {"a": "b", "c": "d", "e": "f"}),
        ("a\\=b\\ c=d", {"a=b c": "d"}),
        ("a=\\u0041\\t\\z", {"a": "A\tz"}),
        ("a==b", {"a": "=b"}),
        ("a", {"a": ""}),
        ("a=b\na=c", {"a": "c"}),
        ("a=b\\", {"a": "b"}),
        ("=b", {"": "b"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, values: dict[str, str]) -> None:
    assert parse_properties(text) == values


def test_a_damaged_escape_is_refused_without_its_value() -> None:
    with pytest.raises(OptionError, match="line 2") as caught:
        parse_properties("a=b\nsecret=hunter2\\u12")
    assert "hunter2" not in str(caught.value)


@given(st.text(alphabet="ab=: \\\n\r\t#!u0\f\x00", max_size=40))
def test_any_text_is_properties_or_refused(text: str) -> None:
    with contextlib.suppress(OptionError):
        parse_properties(text)


FULL = """
key.prefix=tiered/
encryption.enabled=true
encryption.key.pair.id=key2
encryption.key.pairs=key1,key2
encryption.key.pairs.key1.public.key.file=keys/key1.public.pem
encryption.key.pairs.key1.private.key.file=keys/key1.private.pem
encryption.key.pairs.key2.private.key.file=/etc/keys/key2.pem
storage.backend.class=io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage
storage.root=/var/tiered
"""


@pytest.mark.parametrize("prefix", ["", "rsm.config."])
def test_a_brokers_file_and_one_of_the_plugin_alone_say_the_same(tmp_path: Path, prefix: str) -> None:
    config = load(tmp_path, FULL, prefix)
    assert config.key_prefix == "tiered/"
    assert config.key_files == {"key1": tmp_path / "keys/key1.private.pem", "key2": Path("/etc/keys/key2.pem")}
    assert config.location() == ("/var/tiered/tiered", {})


def test_what_the_broker_says_for_itself_is_passed_over(tmp_path: Path) -> None:
    config = load(
        tmp_path, "key.prefix=no\nrsm.config.key.prefix=yes/\nrsm.config.storage.key.prefix=no\nstorage.root=/no"
    )
    assert config.key_prefix == "yes/"
    assert "root" not in config.storage


def test_the_broker_may_have_another_prefix_for_the_plugin(tmp_path: Path) -> None:
    config = load(tmp_path, "remote.log.storage.manager.impl.prefix=my.\nmy.key.prefix=a/\nrsm.config.key.prefix=b/")
    assert config.key_prefix == "a/"


@pytest.mark.parametrize(
    ("key_prefix", "location"),
    [
        ("", "/var/tiered"),
        ("a/", "/var/tiered/a"),
        ("a", "/var/tiered"),
        ("a/b", "/var/tiered/a"),
        ("a/b/", "/var/tiered/a/b"),
    ],
)
def test_the_location_ends_where_the_prefix_no_longer_names_a_directory(
    tmp_path: Path, key_prefix: str, location: str
) -> None:
    config = load(
        tmp_path,
        f"storage.backend.class={PLUGIN}.filesystem.FileSystemStorage\nstorage.root=/var/tiered\nkey.prefix={key_prefix}",
    )
    assert config.location()[0] == location


def shown(options: dict[str, str | bool | Secret]) -> dict[str, str | bool]:
    return {name: value.reveal() if isinstance(value, Secret) else value for name, value in options.items()}


S3 = f"storage.backend.class={PLUGIN}.s3.S3Storage\nstorage.s3.bucket.name=logs\nstorage.s3.region=eu-west-1\n"
GCS = f"storage.backend.class={PLUGIN}.gcs.GcsStorage\nstorage.gcs.bucket.name=logs\n"
AZURE = f"storage.backend.class={PLUGIN}.azure.AzureBlobStorage\nstorage.azure.container.name=logs\n"
ACCOUNT = "storage.azure.account.name=acct\n"

BACKENDS = [
    (S3, "s3://logs", {"region": "eu-west-1"}),
    (
        S3
        + "storage.s3.endpoint.url=http://minio:9000\nstorage.s3.path.style.access.enabled=true\n"
        + "storage.aws.access.key.id=SECRET-1\nstorage.aws.secret.access.key=SECRET-2\n"
        + "storage.aws.session.token=SECRET-3\nstorage.aws.certificate.check.enabled=false\n",
        "s3://logs",
        {
            "region": "eu-west-1",
            "endpoint_url": "http://minio:9000",
            "addressing_style": "path",
            "key": "SECRET-1",
            "secret": "SECRET-2",
            "token": "SECRET-3",
            "verify": False,
        },
    ),
    (
        S3
        + "storage.s3.path.style.access.enabled=false\n"
        + "storage.aws.credentials.provider.class=software.amazon.awssdk.auth.AnonymousCredentialsProvider\n",
        "s3://logs",
        {"region": "eu-west-1", "addressing_style": "virtual", "anon": True},
    ),
    (GCS + "storage.gcs.credentials.default=true\n", "gs://logs", {}),
    (GCS + "storage.gcs.credentials.default=false\n", "gs://logs", {"anon": True}),
    (
        GCS + 'storage.gcs.credentials.json={"private_key":"SECRET-4"}\nstorage.gcs.endpoint.url=http://gcs:80\n',
        "gs://logs",
        {"service_account_key": '{"private_key":"SECRET-4"}', "endpoint_url": "http://gcs:80"},
    ),
    (GCS + "storage.gcs.credentials.path=/etc/gcs.json\n", "gs://logs", {"service_account_file": "/etc/gcs.json"}),
    (AZURE + ACCOUNT, "az://logs", {"account_name": "acct"}),
    (
        AZURE + ACCOUNT + "storage.azure.account.key=SECRET-5\n",
        "az://logs",
        {"account_name": "acct", "account_key": "SECRET-5"},
    ),
    (
        AZURE + ACCOUNT + "storage.azure.sas.token=sig=SECRET-6\n",
        "az://logs",
        {"account_name": "acct", "sas_token": "sig=SECRET-6"},
    ),
    (
        AZURE + "storage.azure.connection.string=AccountName=a;AccountKey=SECRET-7\n",
        "az://logs",
        {"connection_string": "AccountName=a;AccountKey=SECRET-7"},
    ),
    (
        AZURE + ACCOUNT + "storage.azure.account.key=SECRET-8\nstorage.azure.endpoint.url=http://azurite:10000/acct\n",
        "az://logs",
        {
            "connection_string": "DefaultEndpointsProtocol=http;AccountName=acct;AccountKey=SECRET-8;"
            "BlobEndpoint=http://azurite:10000/acct"
        },
    ),
    (
        AZURE + ACCOUNT + "storage.azure.endpoint.url=https://acct.blob.core.chinacloudapi.cn\n",
        "az://logs",
        {"account_name": "acct", "account_host": "acct.blob.core.chinacloudapi.cn"},
    ),
]


@pytest.mark.parametrize(("text", "location", "options"), BACKENDS)
@pytest.mark.parametrize("prefix", ["", "rsm.config."])
def test_each_backend_is_a_location_and_options_that_are_known(
    tmp_path: Path, prefix: str, text: str, location: str, options: dict[str, str | bool]
) -> None:
    config = load(tmp_path, text, prefix)
    found, given_options = config.location()
    assert (found, shown(given_options)) == (location, options)
    find_storage_options(found, given_options, environ={}, files=())
    assert "SECRET" not in f"{config!r} {config!s} {found} {given_options!r}"
    assert b"SECRET" not in pickle.dumps((config, given_options))


def test_a_file_of_credentials_beside_the_settings_is_read(tmp_path: Path) -> None:
    (tmp_path / "aws.properties").write_text("rsm.config.storage.aws.access.key.id=A\naws.secret.access.key=B\n")
    _, options = load(tmp_path, S3 + "storage.aws.credentials.file=aws.properties").location()
    assert shown(options) == {"region": "eu-west-1", "key": "A", "secret": "B"}


def test_relative_paths_start_at_the_file(tmp_path: Path) -> None:
    text = f"storage.backend.class={PLUGIN}.filesystem.FileSystemStorage\nstorage.root=tiered"
    assert load(tmp_path, text).location()[0] == str(tmp_path / "tiered")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("key.prefix=a/", "storage.backend.class is missing"),
        ("storage.backend.class=com.example.TapeStorage", "not known here"),
        (f"storage.backend.class={PLUGIN}.s3.S3Storage", "storage.s3.bucket.name is missing"),
        (f"storage.backend.class={PLUGIN}.filesystem.FileSystemStorage", "storage.root is missing"),
        (AZURE, "storage.azure.account.name is missing"),
        (S3 + "storage.s3.path.style.access.enabled=perhaps", "neither true nor false"),
        (S3 + "storage.aws.secret.access.key=${file:/etc/secret:key}", "configuration provider"),
        (S3 + "storage.aws.credentials.file=nowhere.properties", "cannot be read"),
    ],
)
def test_what_is_missing_for_a_location_is_told_by_name_and_file(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        load(tmp_path, text).location()
    assert str(tmp_path) in str(caught.value)


def test_a_key_from_a_configuration_provider_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="configuration provider"):
        load(tmp_path, "encryption.key.pairs.a.private.key.file=${env:KEY}")


@pytest.mark.parametrize("text", ["", "log.dirs=/var/log\ncompression.type=zstd\n"])
def test_a_file_without_the_plugins_settings_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(OptionError, match="no settings of the plugin"):
        load(tmp_path, text)


def test_files_that_are_no_properties_are_refused(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes((1 << 20) + 1))
    for path in (tmp_path, tmp_path / "missing", tmp_path / "big"):
        with pytest.raises(OptionError):
            RsmConfig.load(path)


def test_a_pickle_has_the_bucket_and_not_the_keys_to_it(tmp_path: Path) -> None:
    config = load(tmp_path, S3 + "storage.aws.access.key.id=A\nstorage.aws.secret.access.key=B")
    copy = pickle.loads(pickle.dumps(config))
    assert copy.storage["s3.bucket.name"] == "logs"
    with pytest.raises(StorageError, match="no secret"):
        copy.location()
