"""No password of a database is ever shown, wherever it stands in the URL and whatever its parameter is called."""

import pytest
from sqlalchemy.engine import make_url

from nas import location
from nas.errors import StoreError
from nas.store import open_reader, open_store
from nas.store.database.secrets import HARMLESS, redacted, shown

SHOWN = {  # what was written -> what is shown
    "postgresql://me:hush@host/name": "postgresql://me:***@host/name",
    "postgresql://me:hush@hush@host/name": "postgresql://me:***@host/name",
    "postgresql://me@host/name?password=hush": "postgresql://me@host/name?password=***",
    "postgresql://me@host/name?passwd=hush": "postgresql://me@host/name?passwd=***",
    "postgresql://me@host/name?pwd=hush": "postgresql://me@host/name?pwd=***",
    "postgresql://me@host/name?pasword=hush": "postgresql://me@host/name?pasword=***",
    "postgresql://me@host/name?apikey=hush": "postgresql://me@host/name?apikey=***",
    "postgresql://me@host/name?sesame=hush": "postgresql://me@host/name?sesame=***",
    "postgresql://me@host/name?auth_token=hush": "postgresql://me@host/name?auth_token=***",
    "postgresql://me@host/name?sslmode=require;password=hush": "postgresql://me@host/name?sslmode=***",
    "postgresql://me:hush@host/name?sslmode=require&sslpassword=hush": (
        "postgresql://me:***@host/name?sslmode=require&sslpassword=***"
    ),
    "postgresql://me@/name?host=%2Ftmp%2Fa-b&connect_timeout=3": (
        "postgresql://me@/name?host=%2Ftmp%2Fa-b&connect_timeout=3"
    ),
    "host=a password='hush hush' user=me": "host=a password=*** user=me",
    "host=a pwd=hush user=me": "host=a pwd=*** user=me",
    "sqlite:///a:b@c.db": "sqlite:///a:b@c.db",
    "sqlite:///file:a.db?mode=ro&uri=true": "sqlite:///file:a.db?mode=ro&uri=true",
    "see https://docs.python.org/3": "see https://docs.python.org/3",
    "user 'me' is unknown: try again @ noon": "user 'me' is unknown: try again @ noon",
}
URLS = [each for each in SHOWN if each.startswith("postgresql://") and "hush@hush" not in each]


@pytest.mark.parametrize(("written", "expected"), SHOWN.items())
def test_text_is_shown_without_what_may_be_a_password(written, expected):
    assert redacted(written) == expected
    assert redacted(f"connection to {written} failed") == f"connection to {expected} failed"


@pytest.mark.parametrize("where", URLS)
def test_a_url_is_shown_without_its_password(where):
    assert "hush" not in location.shown(where) and "name" in location.shown(where)
    assert shown(make_url("postgresql+psycopg://me@host/name")) == "postgresql://me@host/name"


def test_a_parameter_that_is_known_to_be_harmless_is_shown():
    for name in HARMLESS:
        assert redacted(f"postgresql://host/name?{name}=value") == f"postgresql://host/name?{name}=value"


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
        "postgresql://me@127.0.0.1:1/name?pasword=hushhush",
        "postgresql://me:hushhush@127.0.0.1:1/name?connect_timeout=soon",
        "postgresql://me:hushhush hushhush@127.0.0.1:1/name",
        *(
            each.replace("@host/", "@127.0.0.1:1/").replace("hush", "hushhush")
            for each in URLS
            if "@host" in each and ";" not in each
        ),
    ],
)
def test_a_url_that_cannot_be_read_does_not_give_the_password_away(where):
    for opens in (open_store, open_reader):
        with pytest.raises(StoreError) as raised:
            opens(where, retry=0)
        assert "hushhush" not in str(raised.value)
        assert raised.value.__cause__ is None or "hushhush" not in str(raised.value.__cause__)


def test_a_path_may_have_signs_of_urls(tmp_path):
    (tmp_path / "a:b@c.db").touch()
    open_store(str(tmp_path / "a:b@c.db")).close()
    open_store(tmp_path / "d:e@f.db").close()
