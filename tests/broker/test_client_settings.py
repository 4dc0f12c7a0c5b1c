"""Kafka's own option names become settings; nothing secret is shown or pickled."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from segreader.broker.settings import ClientSettings, SaslMechanism, SecurityProtocol
from segreader.errors import AuthenticationError, OptionError
from segreader.storage.signed_url import Secret

CANARY = "c4naryP4ssword"
JAAS = "org.apache.kafka.common.security.{}.{} required"
PLAIN = JAAS.format("plain", "PlainLoginModule")
SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}


def test_the_names_of_the_java_client_and_of_librdkafka_say_the_same() -> None:
    java = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": JAAS.format("scram", "ScramLoginModule") + f' username="al\\"ice" password=\'{CANARY}\';',
        "ssl.truststore.location": "/ca.pem",
        "ssl.truststore.type": "PEM",
        "client.rack": "a",
        "request.timeout.ms": "5000",
    }
    librdkafka = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": 'al"ice',
        "sasl.password": Secret(CANARY),
        "ssl.ca.location": "/ca.pem",
        "client.rack": "a",
        "request.timeout.ms": 5000,
    }
    spark = {f"kafka.{name}": value for name, value in java.items()}
    settings = ClientSettings.from_options(java)

    assert settings == ClientSettings.from_options(librdkafka) == ClientSettings.from_options(spark)
    assert settings.security_protocol is SecurityProtocol.SASL_SSL
    assert settings.sasl_mechanism is SaslMechanism.SCRAM_SHA_512
    assert settings.sasl_username == 'al"ice'
    assert settings.request_timeout_ms == 5000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sasl.passwrod": CANARY}, r"Did you mean sasl\.password\?"),
        ({"securty.protocol": CANARY}, r"Did you mean security\.protocol\?"),
        ({CANARY: "x"}, "a name that is not shown"),
        ({"bootstrap.servers": CANARY}, "given apart"),
        ({"ssl.keystore.key": CANARY}, r"ssl\.key\.location"),
        ({"security.protocol": CANARY}, "expected PLAINTEXT, SSL"),
        ({"sasl.mechanism": CANARY}, "expected PLAIN, SCRAM"),
        ({"request.timeout.ms": CANARY}, "expected a number"),
        ({"request.timeout.ms": "-1"}, "must be a positive number"),
        ({"enable.ssl.certificate.verification": CANARY}, "true or false"),
        ({"ssl.truststore.type": "JKS"}, "PEM"),
        ({"sasl.jaas.config": CANARY}, "no login module"),
        ({"sasl.jaas.config": PLAIN + f" username=a password={CANARY}"}, "cannot be read"),
        ({"sasl.jaas.config": PLAIN + f" password={CANARY};"}, "lacks username"),
        ({"sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"}, "no login module"),
        ({"sasl.password": CANARY, "sasl.jaas.config": PLAIN + " username=a password=b;"}, "are the same setting"),
        ({"security.protocol": "SASL_SSL", "sasl.password": CANARY}, r"needs sasl\.mechanism"),
        (SASL | {"sasl.password": CANARY}, r"needs sasl\.username"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "needs a token"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": CANARY}, "has no SASL"),
        ({"sasl.password": CANARY}, "has no SASL"),
        ({"sasl.oauthbearer.token.file": CANARY}, "has no SASL"),
        ({"oauth_cb": CANARY}, "a callable"),
    ],
)
def test_what_cannot_be_used_is_refused_without_its_value(options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        ClientSettings.from_options(options)
    assert CANARY not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_token_file_is_read_for_each_connection(tmp_path: Path) -> None:
    path = tmp_path / "token"
    settings = ClientSettings.from_options(
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.file": str(path)}
    )
    assert settings.token_provider is not None
    path.write_text("one\n")
    assert settings.token_provider() == "one"
    path.write_text("two\n")
    assert settings.token_provider() == "two"
    path.unlink()
    with pytest.raises(AuthenticationError, match="cannot be read"):
        settings.token_provider()


def test_a_token_callback_as_confluent_kafka_takes_it_will_do() -> None:
    settings = ClientSettings.from_options(
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda: ("token", 1e9)}
    )
    assert settings.token_provider is not None
    assert settings.token_provider() == "token"


def secretive(mechanism: str) -> ClientSettings:
    values: dict[str, Any] = {
        "security_protocol": SecurityProtocol.SASL_SSL,
        "sasl_mechanism": SaslMechanism(mechanism),
    }
    if mechanism == "OAUTHBEARER":
        return ClientSettings(token_provider=lambda: CANARY, key_password=Secret(CANARY), **values)
    return ClientSettings(sasl_username="u", sasl_password=Secret(CANARY), key_password=Secret(CANARY), **values)


@pytest.mark.parametrize("mechanism", list(SaslMechanism))
def test_a_pickle_holds_no_secret_and_says_so(mechanism: str) -> None:
    settings = secretive(mechanism)
    data = pickle.dumps(settings)
    again = pickle.loads(data)

    assert CANARY.encode() not in data
    assert again.is_without_secrets
    assert again.sasl_username == settings.sasl_username
    with pytest.raises(AuthenticationError, match=r"ClientSettings\.with_secrets"):
        again.require_secrets()
    assert pickle.loads(pickle.dumps(again)).is_without_secrets


def test_settings_without_secrets_come_out_of_a_pickle_as_they_were() -> None:
    settings = ClientSettings(rack="a", ca_file="/ca.pem", security_protocol=SecurityProtocol.SSL)
    assert pickle.loads(pickle.dumps(settings)) == settings


@pytest.mark.parametrize("mechanism", list(SaslMechanism))
def test_no_text_of_settings_shows_a_secret(mechanism: str) -> None:
    settings = secretive(mechanism)
    assert CANARY not in f"{settings} {settings!r} {vars(type(settings))}"


def test_an_answer_may_always_be_twice_what_is_asked_for() -> None:
    settings = ClientSettings(max_frame_bytes=1000)
    assert settings.frame_limit() == 1000
    assert settings.frame_limit(10_000) == 20_000
