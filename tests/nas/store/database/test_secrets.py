"""No password of a database is ever shown, wherever it stands in the URL."""

import pytest
from sqlalchemy.engine import make_url

from nas import location
from nas.errors import StoreError
from nas.store import open_reader, open_store
from nas.store.database.secrets import redacted, shown

WRITTEN = [
    "postgresql://me:hushhush@host/name",
    "postgresql://me:hush@hush@host/name",
    "postgresql://me@host/name?password=hushhush",
    "postgresql://me:hushhush@host/name?sslmode=require&sslpassword=hushhush",
    "postgresql://me@host/name?auth_token=hushhush",
]


@pytest.mark.parametrize("where", WRITTEN)
def test_a_url_is_shown_without_its_password(where):
    for text in (redacted(where), location.shown(where), redacted(f"connection to {where} failed")):
        assert "hush" not in text
        assert "***" in text and "host/name" in text
    assert shown(make_url("postgresql+psycopg://me@host/name")) == "postgresql://me@host/name"


@pytest.mark.parametrize(
    "where",
    [
        "postgresql://me:hushhush@host:port/name",
        "postgresql//:hush://me:hushhush@host",
        "mysql://me:hushhush@host/name",
        "postgresql:/me:hushhush@host/name",
        "postgresql:me:hushhush@host/name",
        "//me:hushhush@host/name",
        "postgresql:///me:hushhush@host/name",
        "postgresql://me:hush@hushhush@host/name",
        "sqlite://me:hushhush@host/name",
        "host=127.0.0.1 password=hushhush dbname=name",
        "postgresql://me:hushhush@127.0.0.1:1/name?bogus=1",
        "postgresql://me:hushhush@127.0.0.1:1/name?connect_timeout=soon",
    ],
)
def test_a_url_that_cannot_be_read_does_not_give_the_password_away(where):
    with pytest.raises(StoreError) as raised:
        open_store(where)
    assert "hushhush" not in str(raised.value)
    assert raised.value.__cause__ is None or "hush" not in str(raised.value.__cause__)
    with pytest.raises(StoreError) as raised:
        open_reader(where)
    assert "hushhush" not in str(raised.value)


def test_a_password_with_a_space_is_not_shown():
    with pytest.raises(StoreError) as raised:
        open_store("postgresql://me:hush hushhush@127.0.0.1:1/name", retry=0)
    assert "hush" not in str(raised.value)


def test_a_path_may_have_signs_of_urls(tmp_path):
    (tmp_path / "a:b@c.db").touch()
    open_store(str(tmp_path / "a:b@c.db")).close()
    open_store(tmp_path / "d:e@f.db").close()


@pytest.mark.parametrize("where", WRITTEN[:1] + WRITTEN[2:])
def test_a_server_that_is_not_there_does_not_give_the_password_away(where):
    with pytest.raises(StoreError) as raised:
        open_store(where.replace("@host/", "@127.0.0.1:1/"), retry=0)
    assert "hush" not in str(raised.value)


def test_what_is_no_password_stays():
    for text in ("sqlite:///a:b@c.db", "see https://docs.python.org/3", "user 'me' is unknown: try again @ noon"):
        assert redacted(text) == text
    assert redacted("host=a password='hush hush' user=me") == "host=a password=*** user=me"
