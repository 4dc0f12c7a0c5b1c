from __future__ import annotations

import pytest

import segreader
from segreader.errors import LocationExpiredError, ObjectNotFoundError, OptionError
from segreader.storage.http.store import UrlList


def test_names_are_host_and_path_without_the_signature() -> None:
    urls = UrlList(["https://h/b/2.log?sig=two", "https://h/a%20b/1.log?sig=one"])
    assert [info.name for info in urls.names()] == ["h/a b/1.log", "h/b/2.log"]
    assert [info.name for info in urls.names("h/b")] == ["h/b/2.log"]
    assert urls.url_for("h/b/2.log").reveal() == "https://h/b/2.log?sig=two"


@pytest.mark.parametrize("text", ["https://[::1/k.log?sig=canary", "ftp://h/k?sig=canary", "https://h", "canary", ""])
def test_what_is_no_url_of_an_object_is_refused_without_its_signature(text: str) -> None:
    for attempt in (lambda: UrlList([text]), lambda: segreader.scan(urls=[text])):
        with pytest.raises(OptionError, match=r"not .*expected https://host/path, with its query if it is signed"):
            attempt()
    with pytest.raises(OptionError) as caught:
        segreader.scan(urls=["https://[::1/k.log?sig=canary"])
    assert "canary" not in str(caught.value)


def test_a_url_given_twice_and_an_empty_list_are_refused() -> None:
    with pytest.raises(OptionError, match="two URLs name one object"):
        UrlList(["https://h/a?sig=1", "https://h/a?sig=2"])
    with pytest.raises(OptionError, match="empty"):
        UrlList([])


def test_an_expired_url_is_renewed_by_the_callers_function_or_refused() -> None:
    urls = UrlList(["https://h/a?sig=old"], renew=lambda old: old.replace("old", "new"))
    assert urls.refresh("h/a").reveal() == "https://h/a?sig=new"
    assert urls.url_for("h/a").reveal() == "https://h/a?sig=new"
    with pytest.raises(LocationExpiredError, match="renews"):
        UrlList(["https://h/a?sig=old"]).refresh("h/a")
    with pytest.raises(ObjectNotFoundError):
        urls.url_for("h/b")
