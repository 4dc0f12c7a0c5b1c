from __future__ import annotations

import json
import pickle
import ssl
import traceback
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trustme
from canaries import CANARIES, everything_logged, leaks
from hand_clock import HandClock
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from servers.process import free_port
from servers.schema_registry import RECORDED, Answer, SchemaRegistryServer, schema_registry
from typed_orders import SAVED

from segreader.errors import (
    OptionError,
    SchemaAccessError,
    SchemaNotFoundError,
    SchemaRegistryError,
    SegreaderError,
)
from segreader.schemas import registry
from segreader.storage.signed_url import Secret
from segreader.typed.formats.avro import fingerprint64
from segreader.typed.registry import DEEPEST_REFERENCE, LARGEST_ANSWER, SchemaRegistry
from segreader.typed.schema import Framing, Schema, SchemaFormat, SchemaSet

AVRO = json.dumps("string")


def version(subject: str, number: int, id: int, schema: str = AVRO, **more: Any) -> dict[str, Any]:
    """A version as the contract gives it."""
    return {"subject": subject, "version": number, "id": id, "schema": schema, **more}


def refers(subject: str, id: int, *to: str) -> dict[str, Any]:
    """A version that refers to version 1 of other subjects."""
    return version(subject, 1, id, references=[{"name": name, "subject": name, "version": 1} for name in to])


@pytest.fixture
def failing(server: SchemaRegistryServer) -> Callable[..., SchemaRegistryError]:
    """Gives the error that learning raises; no wait takes any time."""

    def error(topic: str | None = "orders-avro", **given: Any) -> SchemaRegistryError:
        with pytest.raises(SchemaRegistryError) as caught:
            SchemaRegistry(server.url, clock=HandClock(), **given).learn(topic)
        return caught.value

    return error


# What is learnt


def test_a_topic_costs_a_list_for_each_side_and_a_request_for_each_version(server: SchemaRegistryServer) -> None:
    known = registry(server.url).learn("orders-avro")

    assert sorted(server.lines) == [
        "GET /subjects/com.example.Address/versions/1?deleted=true",
        "GET /subjects/orders-avro-key/versions/1?deleted=true",
        "GET /subjects/orders-avro-key/versions?deleted=true",
        *(f"GET /subjects/orders-avro-value/versions/{number}?deleted=true" for number in (1, 2, 3)),
        "GET /subjects/orders-avro-value/versions?deleted=true",
    ]
    assert {name: [one.version for one in versions] for name, versions in known.subjects} == {
        "orders-avro-value": [1, 2, 3],
        "orders-avro-key": [1],
    }


def test_what_is_learnt_of_each_topic_is_in_the_file_that_was_saved(server: SchemaRegistryServer) -> None:
    saved = SchemaSet.from_json(SAVED.read_text())
    for topic in ("orders-avro", "orders-protobuf", "orders-json", "orders-headers", "orders-bad"):
        known = registry(server.url).learn(topic)
        assert set(known.ids) <= set(saved.ids), topic
        assert set(known.subjects) <= set(saved.subjects), topic
        assert known.framing is Framing.CONFLUENT


def test_ids_are_numbers_and_guids_of_the_same_schema(server: SchemaRegistryServer) -> None:
    known = registry(server.url).learn("orders-headers")
    for one in json.loads(RECORDED.read_text())["versions"]:
        if one["subject"] == "orders-headers-value":
            schema = known.schema(one["id"])
            assert schema is not None
            assert schema is known.schema(uuid.UUID(one["guid"]).hex)
            assert schema == Schema(SchemaFormat.AVRO, one["schema"])


def test_references_come_with_the_schema_that_names_them(server: SchemaRegistryServer) -> None:
    known = registry(server.url).learn("orders-avro")
    newest = known.schema(dict(known.subjects)["orders-avro-value"][-1].id)
    assert newest is not None
    assert [one.name for one in newest.references] == ["com.example.Address"]
    assert json.loads(newest.references[0].schema.text)["name"] == "Address"


def test_a_topic_of_nothing_gives_every_subject(server: SchemaRegistryServer) -> None:
    known = registry(server.url).learn(None)
    assert {name for name, _ in known.subjects} == {
        one["subject"] for one in json.loads(RECORDED.read_text())["versions"]
    }


def test_soft_deleted_versions_are_learnt_because_old_records_name_them() -> None:
    with schema_registry([version("t-value", 1, 1, deleted=True), version("t-value", 2, 2)]) as server:
        known = registry(server.url).learn("t")
    assert [id for id, _ in known.ids] == ["1", "2"]


def test_subjects_can_be_named_in_place_of_those_of_the_topic(server: SchemaRegistryServer) -> None:
    known = registry(server.url, subject=["com.example.Address", "address"]).learn("anything")
    assert [name for name, _ in known.subjects] == ["address", "com.example.Address"]
    assert registry(server.url, subject="address").learn(None).subjects == known.subjects[:1]


def test_a_subject_of_a_context_is_asked_for_whole() -> None:
    subject = ":.eu:orders/1-value"
    with schema_registry([version(subject, 1, 1)]) as server:
        known = registry(server.url, subject=subject).learn("orders")
        assert server.lines[0] == "GET /subjects/%3A.eu%3Aorders%2F1-value/versions?deleted=true"
    assert known.subjects[0][0] == subject


def test_ids_of_no_subject_can_be_asked_for(server: SchemaRegistryServer) -> None:
    other = json.loads(RECORDED.read_text())["versions"][0]
    known = registry(server.url, ids=[other["id"]]).learn("orders-avro")
    assert known.schema(other["id"]) == Schema(SchemaFormat.JSON, other["schema"])
    assert registry(server.url).find(["4711", other["guid"], "no id"]) == {
        other["guid"]: Schema(SchemaFormat.JSON, other["schema"])
    }
    with pytest.raises(SchemaNotFoundError, match="no such id; found 4711"):
        registry(server.url, ids=[4711]).learn("orders-avro")


@pytest.mark.parametrize("ids", ["4711", ["4711"], [np.int64(4711)]])
def test_one_id_as_text_is_one_id(server: SchemaRegistryServer, ids: Any) -> None:
    with pytest.raises(SchemaNotFoundError, match=r"no such id; found 4711$"):
        registry(server.url, ids=ids).learn("orders-avro")


def test_single_objects_are_known_by_their_fingerprints(server: SchemaRegistryServer) -> None:
    known = registry(server.url, framing="single-object").learn("orders-bad")
    (id, schema), *_ = known.ids
    assert known.framing is Framing.SINGLE_OBJECT
    assert known.schema(fingerprint64(schema).hex()) is known.schema(id)


def test_protobuf_schemas_come_compiled(server: SchemaRegistryServer) -> None:
    known = registry(server.url, message="example.Audit").learn("orders-protobuf")
    assert known.message == "example.Audit"
    assert not [schema for _, schema in known.ids if "syntax" in schema.text]


def test_a_topic_without_subjects_is_not_found(failing: Callable[..., SchemaRegistryError]) -> None:
    error = failing("payments")
    assert isinstance(error, SchemaNotFoundError)
    assert "no schemas of payments; found none for payments-value, payments-key" in str(error)


def test_a_schema_of_another_format_is_an_error_of_its_topic_and_passed_over_otherwise() -> None:
    with schema_registry([version("t-value", 1, 1, schemaType="OPENAPI"), version("u-value", 1, 2)]) as server:
        with pytest.raises(SchemaRegistryError, match="t-value 1: the schema is of another format"):
            registry(server.url).learn("t")
        assert [id for id, _ in registry(server.url).learn(None).ids] == ["2"]


def test_a_version_that_is_listed_and_not_given_is_passed_over(server: SchemaRegistryServer) -> None:
    gone = Answer(404, b'{"error_code": 40402}')
    server.instead = lambda path: gone if path.endswith("orders-avro-value/versions/2") else None
    known = registry(server.url).learn("orders-avro")
    assert [one.version for one in dict(known.subjects)["orders-avro-value"]] == [1, 3]


# References that cannot be


def test_schemas_that_refer_to_each_other_in_a_circle_are_refused() -> None:
    with (
        schema_registry([refers("t-value", 1, "a"), refers("a", 2, "b"), refers("b", 3, "a")]) as server,
        pytest.raises(SchemaRegistryError, match="in a circle; found t-value 1 > a 1 > b 1 > a 1"),
    ):
        registry(server.url).learn("t")


def test_references_within_references_have_a_limit() -> None:
    names = ["t-value", *(f"n{depth}" for depth in range(DEEPEST_REFERENCE + 2))]
    chain = [refers(name, id, *names[id : id + 1]) for id, name in enumerate(names, 1)]
    with schema_registry(chain) as server, pytest.raises(SchemaRegistryError, match="too deep"):
        registry(server.url).learn("t")


def test_references_that_double_with_each_level_have_a_limit() -> None:
    names = ["t-value", *(f"n{depth}" for depth in range(30))]
    doubling = [
        version(name, 1, id, references=[{"name": f"{side}", "subject": names[id], "version": 1} for side in "ab"])
        for id, name in enumerate(names[:-1], 1)
    ]
    with (
        schema_registry([*doubling, version(names[-1], 1, len(names))]) as server,
        pytest.raises(SchemaRegistryError, match="too many others"),
    ):
        registry(server.url).learn("t")


# Who may ask


@pytest.mark.parametrize(
    "given",
    [
        {"auth": ("reader", CANARIES["password"])},
        {"auth": f"reader:{CANARIES['password']}"},
        {"auth": ("reader", "env:REGISTRY_PASSWORD")},
        {"auth": "@registry.secret"},
        {"auth": ("reader", Secret(CANARIES["password"]))},
    ],
    ids=["pair", "text", "variable", "file", "secret"],
)
def test_a_user_and_password_are_sent_however_they_are_given(
    given: dict[str, Any], server: SchemaRegistryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGISTRY_PASSWORD", CANARIES["password"])
    Path("registry.secret").write_text(f"reader:{CANARIES['password']}\n")
    server.user = ("reader", CANARIES["password"])

    assert registry(server.url, **given).learn("orders-bad").ids


def test_a_user_in_the_url_is_sent_and_not_shown(server: SchemaRegistryServer) -> None:
    server.user = ("re@der", "p:w/d%")
    source = registry(server.url.replace("//", "//re%40der:p%3Aw%2Fd%25@"))
    assert source.learn("orders-bad").ids
    assert repr(source) == f"registry('{server.url}')"


def test_a_token_and_other_headers_are_sent(server: SchemaRegistryServer) -> None:
    server.token = CANARIES["signature"]
    registry(server.url, token=CANARIES["signature"], headers={"X-Registry-GroupId": "shop"}).learn("orders-bad")
    assert {one.headers["x-registry-groupid"] for one in server.requests} == {"shop"}


def test_who_may_not_ask_is_denied_and_told_how_to_say_who_they_are(
    server: SchemaRegistryServer, failing: Callable[..., SchemaRegistryError]
) -> None:
    server.user = ("reader", CANARIES["password"])
    error = failing()
    assert isinstance(error, SchemaAccessError)
    assert (error.status, error.code) == (401, 401)
    assert "SEGREADER_SCHEMA_REGISTRY_AUTH" in str(error)
    assert "See user and password" in str(failing(auth=("reader", "wrong")))
    assert len(server.requests) <= 4  # once for each subject: no try is repeated


def test_no_secret_is_in_what_is_logged_shown_raised_or_pickled(server: SchemaRegistryServer) -> None:
    place = server.url.replace("//", f"//reader:{CANARIES['password']}@")
    sources = [
        SchemaRegistry(place, headers={"X-Key": CANARIES["secret"]}, clock=HandClock()),
        SchemaRegistry(server.url, token=CANARIES["signature"], clock=HandClock()),
    ]
    texts: list[str] = []
    with everything_logged() as lines:
        for source in sources:
            texts.append(repr(source))
            for planted in (
                Answer(401, json.dumps({"error_code": 401, "message": CANARIES["password"]}).encode()),
                Answer(302, headers={"Location": f"https://other.example/?sig={CANARIES['sas']}"}),
                Answer(200, CANARIES["secret"].encode()),
                Answer(500, CANARIES["secret"].encode()),
            ):
                server.instead = lambda _, planted=planted: planted  # type: ignore[misc]
                with pytest.raises(SchemaRegistryError) as caught:
                    source.learn("orders-avro")
                texts.append("".join(traceback.format_exception(caught.value)))
                texts.append(repr(vars(caught.value)))
                texts.append(pickle.dumps(caught.value).decode("latin-1"))
            with pytest.raises(OptionError, match="cannot be pickled") as refused:
                pickle.dumps(source)
            texts.append(str(refused.value))
    assert server.requests[0].headers["x-key"] == CANARIES["secret"]
    assert leaks("\n".join([*texts, *lines])) == []


def test_a_source_without_secrets_can_be_pickled(server: SchemaRegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_AUTH", "reader:pass")
    server.user = ("reader", "pass")
    again = pickle.loads(pickle.dumps(registry(server.url, auth="env:REGISTRY_AUTH", subject="address")))
    assert again.learn(None) == registry(server.url, auth="reader:pass", subject="address").learn(None)


def test_a_header_that_cannot_be_sent_is_refused_without_being_shown(server: SchemaRegistryServer) -> None:
    with pytest.raises(OptionError, match="token cannot be sent") as caught:
        registry(server.url, token=f"{CANARIES['signature']}\r\nX-Other: 1").learn("t")
    assert leaks(str(caught.value)) == []
    assert server.requests == []


def test_a_redirect_within_the_host_is_followed_with_the_secrets(server: SchemaRegistryServer) -> None:
    server.user = ("reader", "pass")
    server.instead = lambda path: (
        None
        if path.startswith("/v2/") or "/versions/" in path
        else Answer(308, headers={"Location": f"/v2{path}?deleted=true"})
    )
    right = server.answer

    def answer(method: str, target: str, headers: dict[str, str], body: bytes) -> Answer:
        return right(method, target.replace("/v2/", "/", 1) if "/v2/" in target else target, headers, body)

    with pytest.raises(SchemaRegistryError, match="redirects elsewhere"):  # round and round
        server.answer = answer  # type: ignore[method-assign]
        registry(server.url, auth="reader:pass").learn("orders-bad")
    server.instead = lambda path: None
    server.planted = [Answer(307, headers={"Location": "/subjects/address/versions?deleted=true"})]
    assert registry(server.url, auth="reader:pass", subject="address").learn(None).ids


def test_a_redirect_to_another_host_is_not_followed(
    server: SchemaRegistryServer, failing: Callable[..., SchemaRegistryError]
) -> None:
    with schema_registry() as other:
        for there in (f"{other.url}/subjects", f"//127.0.0.1:{other.url.rpartition(':')[2]}/", "https://127.0.0.1/"):
            server.instead = lambda _, there=there: Answer(302, headers={"Location": there})  # type: ignore[misc]
            assert "redirects elsewhere" in str(failing(auth=("reader", CANARIES["password"])))
        assert other.requests == []


# What may pass, and what will not


def test_failures_that_may_pass_are_tried_again(server: SchemaRegistryServer) -> None:
    clock = HandClock()
    server.planted = [Answer(503), Answer(429, headers={"Retry-After": "7"}), Answer(200, b'["', cut=40)]
    assert SchemaRegistry(server.url, subject="address", clock=clock).learn(None).ids
    assert len(clock.waits) == 3
    assert 7 <= clock.waits[1] < 10


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_failures_that_do_not_pass_are_raised_after_five_tries(
    status: int, server: SchemaRegistryServer, failing: Callable[..., SchemaRegistryError]
) -> None:
    server.instead = lambda _: Answer(status, b"<html>")
    error = failing(None)
    assert error.status == status
    assert len(server.requests) == 5
    assert f"/subjects: the registry {'asks for fewer' if status == 429 else 'failed'}" in str(error)


def test_a_registry_that_asks_for_a_long_wait_is_not_waited_for(
    server: SchemaRegistryServer, failing: Callable[..., SchemaRegistryError]
) -> None:
    server.instead = lambda _: Answer(503, headers={"Retry-After": "3600"})
    failing(None)
    assert len(server.requests) == 1


def test_an_answer_that_does_not_come_in_time_is_given_up(
    server: SchemaRegistryServer, failing: Callable[..., SchemaRegistryError]
) -> None:
    server.instead = lambda _: Answer(wait_s=3)  # longer than the machine may stop
    assert "no answer came in time" in str(failing(None, timeout_s=0.05))


def test_a_registry_that_does_not_listen_is_named_without_its_user() -> None:
    place = f"127.0.0.1:{free_port()}"
    with pytest.raises(SchemaRegistryError, match=f"http://{place}/ctx/subjects: ") as caught:
        SchemaRegistry(f"http://reader:secret@{place}/ctx/", clock=HandClock()).learn(None)
    assert caught.value.status is None
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html>", "something else than JSON"),
        (b"[" * 200_000, "something else than JSON"),
        (b'{"subjects": []}', "something else than a list"),
        (b"[1, 2]", "something else than a list"),
        (b'["a"] ' + b" " * LARGEST_ANSWER, "too large"),
    ],
    ids=["page", "deep", "object", "numbers", "large"],
)
def test_answers_of_something_else_are_named_for_what_they_are(
    body: bytes, said: str, server: SchemaRegistryServer, failing: Callable[..., SchemaRegistryError]
) -> None:
    server.instead = lambda _: Answer(body=body)
    assert said in str(failing(None))


def test_a_page_that_is_not_there_is_no_registry(
    server: SchemaRegistryServer, failing: Callable[..., SchemaRegistryError]
) -> None:
    server.instead = lambda _: Answer(404, b"<html>not here</html>")
    assert "not that of a schema registry" in str(failing(None))
    assert "/apis/ccompat/v7" in str(failing("orders"))


def test_an_answer_that_is_compressed_is_no_json(
    server: SchemaRegistryServer, failing: Callable[..., SchemaRegistryError]
) -> None:
    server.instead = lambda _: Answer(body=b"\x1f\x8b\x08\0", headers={"Content-Encoding": "gzip"})
    assert "something else than JSON" in str(failing(None))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(
            st.sampled_from(["subject", "version", "id", "schema", "schemaType", "references", "guid", "name", "x"]),
            below,
        )
    ),
    max_leaves=8,
)


@given(documents=st.lists(_JSON, min_size=1, max_size=3))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_json_gives_schemas_or_a_typed_error(documents: list[Any], server: SchemaRegistryServer) -> None:
    answers: Iterator[Any] = iter([["t-value"], [1], *documents])
    server.instead = lambda _: Answer(body=json.dumps(next(answers, documents[-1])).encode())
    try:
        known = registry(server.url).learn(None)
    except SegreaderError:
        return
    assert SchemaSet.from_json(known.to_json()) == known


# TLS


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """Signs what the servers of these tests show."""
    return trustme.CA()


@pytest.fixture
def tls(authority: trustme.CA) -> ssl.SSLContext:
    """Of a server on 127.0.0.1."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


def test_only_a_certificate_that_is_trusted_is_spoken_to(
    authority: trustme.CA, tls: ssl.SSLContext, tmp_path: Path
) -> None:
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    with schema_registry(tls=tls) as server:
        with pytest.raises(SchemaRegistryError, match="certificate is not trusted"):
            registry(server.url, auth="reader:pass").learn(None)
        assert server.requests == []
        assert registry(server.url, ca_file=str(tmp_path / "ca.pem")).learn("orders-bad").ids


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_any_certificate_is_taken_only_if_asked_for_and_with_a_warning(tls: ssl.SSLContext) -> None:
    with schema_registry(tls=tls) as server, pytest.warns(UserWarning, match="not verified"):
        assert registry(server.url, verify=False).learn("orders-bad").ids


def test_a_certificate_of_ours_is_shown_to_a_registry_that_asks(
    authority: trustme.CA, tls: ssl.SSLContext, tmp_path: Path
) -> None:
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.configure_trust(tls)
    tls.verify_mode = ssl.CERT_REQUIRED
    ours = authority.issue_cert("reader@segreader.example")
    ours.private_key_pem.write_to_path(tmp_path / "key.pem")
    ours.cert_chain_pems[0].write_to_path(tmp_path / "certificate.pem")
    files: dict[str, Any] = {
        "certificate_file": str(tmp_path / "certificate.pem"),
        "key_file": str(tmp_path / "key.pem"),
    }
    with schema_registry(tls=tls) as server:
        assert registry(server.url, ca_file=str(tmp_path / "ca.pem"), **files).learn("orders-bad").ids
        with pytest.raises(SchemaRegistryError):
            SchemaRegistry(server.url, ca_file=str(tmp_path / "ca.pem"), clock=HandClock()).learn("orders-bad")


@pytest.mark.parametrize("text", [None, "no certificate", "-----BEGIN ENCRYPTED PRIVATE KEY-----"])
def test_a_certificate_of_ours_that_cannot_be_used_is_named(
    text: str | None, server: SchemaRegistryServer, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / "own.pem").write_text(text)
    with pytest.raises(OptionError, match=r"own\.pem: the client's certificate cannot be used"):
        registry(server.url, certificate_file=str(tmp_path / "own.pem")).learn(None)


# What is asked for


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"url": "registry:8081"}, "not the URL of a registry"),
        ({"url": "ftp://registry"}, "not the URL of a registry"),
        ({"url": "http://"}, "not the URL of a registry"),
        ({"url": "http://registry:port"}, "not the URL of a registry"),
        ({"url": "http://registry?token=abc"}, "has no query"),
        ({"url": "http://a:b@registry", "auth": "a:b"}, "in its URL and in auth"),
        ({"url": "http://registry", "auth": "a:b", "token": "t"}, "exclude each other"),
        ({"url": "http://registry", "key_file": "k"}, "needs certificate_file"),
        ({"url": "http://registry", "framing": "glue"}, "names no schema of a registry"),
        ({"url": "http://registry", "framing": "other"}, "unknown framing"),
        ({"url": 5}, "not the URL of a registry; found int"),
        ({"url": "http://registry", "auth": 5}, "auth must be text; found int"),
        ({"url": "http://registry", "auth": ("abc",)}, r"auth is \(user, password\); found 1 text"),
        ({"url": "http://registry", "auth": ("a", "abc", "c")}, r"auth is \(user, password\); found 3 texts"),
        ({"url": "http://registry", "auth": ("a", 5)}, "auth must be text; found int"),
        ({"url": "http://registry", "token": b"abc"}, "token must be text; found bytes"),
        ({"url": "http://registry", "headers": "abc"}, "headers must be a mapping; found str"),
        ({"url": "http://registry", "headers": {"a": 5}}, "the header a must be text; found int"),
        ({"url": "http://registry", "headers": {5: "abc"}}, "names of headers must be text; found int"),
        ({"url": "http://registry", "subject": 5}, "subject is a name, or several; found 5"),
        ({"url": "http://registry", "subject": ["a", 5]}, "subject is a name, or several; found 5"),
        ({"url": "http://registry", "ids": None}, "ids are numbers or GUIDs; found None"),
        ({"url": "http://registry", "ids": [True]}, "ids are numbers or GUIDs; found True"),
        ({"url": "http://registry", "ids": [1.5]}, "ids are numbers or GUIDs; found 1.5"),
        ({"url": "http://registry", "timeout_s": -1}, "timeout_s must be a positive number; found -1"),
        ({"url": "http://registry", "timeout_s": 0}, "timeout_s must be a positive number; found 0"),
        ({"url": "http://registry", "timeout_s": "x"}, "timeout_s must be a positive number; found 'x'"),
        ({"url": "http://registry", "timeout_s": True}, "timeout_s must be a positive number; found True"),
        ({"url": "http://registry", "timeout_s": float("nan")}, "timeout_s must be a positive number; found nan"),
    ],
)
def test_what_makes_no_registry_is_refused_at_once(given: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said) as caught:
        registry(**given)
    assert "abc" not in str(caught.value)


def test_a_reference_to_a_secret_that_is_not_there_is_named(server: SchemaRegistryServer) -> None:
    with pytest.raises(OptionError, match="found NO_SUCH_VARIABLE"):
        registry(server.url, token="env:NO_SUCH_VARIABLE").learn(None)
    assert server.requests == []
