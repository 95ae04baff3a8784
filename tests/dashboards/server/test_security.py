"""Who may ask, from which host, and what a browser may do with the answer."""

from __future__ import annotations

import collections
import json
import os
import random
import re

import pytest

from dashboards.server.app import application
from dashboards.server.security import COOKIE
from tests.dashboards.conftest import Client

TOKEN = "a-long-token-of-ours"


@pytest.fixture
def guarded(serve, databases):
    return serve(databases["finished"], host="0.0.0.0", token=TOKEN, name="lab.example.org")


def test_another_host_needs_a_token(databases):
    with pytest.raises(ValueError, match="token"):
        application([databases["finished"]], host="0.0.0.0")


def test_nothing_is_shown_without_the_token(guarded):
    for path in ("/", "/studies/finished/finished", "/studies/finished/finished.json", "/static/page.js"):
        answer = guarded.get(path, {"authorization": "Bearer wrong", "cookie": f"{COOKIE}=wrong"})
        assert answer.status == 401
        assert b"bits_per_byte" not in answer.body


def test_the_token_becomes_a_cookie_that_scripts_cannot_read(guarded):
    answer = guarded.get(f"/studies/finished/finished?x=flops&token={TOKEN}")
    cookie = answer.header("set-cookie")

    assert answer.status == 303
    assert answer.header("location") == "/studies/finished/finished?x=flops"
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert TOKEN not in cookie
    assert guarded.get("/", {"cookie": cookie.partition(";")[0]}).status == 200


def test_a_token_of_any_letters_is_taken_from_programs_too(serve, databases):
    token = "schlüssel-ß"
    client = serve(databases["finished"], host="0.0.0.0", token=token)
    sent = f"Bearer {token}".encode().decode("latin-1")  # the bytes of UTF-8, as a program sends them
    answers = [client.get("/", {"authorization": each}) for each in (sent, sent[:-1])]

    assert [each.status for each in answers] == [200, 401]


def test_the_form_takes_the_token(guarded):
    form = {"content-type": "application/x-www-form-urlencoded"}

    assert guarded.ask("POST", "/login", form, f"token={TOKEN}".encode()).status == 303
    assert guarded.ask("POST", "/login", form, b"token=wrong").status == 401
    assert guarded.ask("POST", "/login", form, b"x" * 10_000 + f"&token={TOKEN}".encode()).status == 401


def test_the_token_leaves_the_address_although_the_cookie_is_known(guarded):
    cookie = guarded.get(f"/?token={TOKEN}").header("set-cookie").partition(";")[0]

    assert guarded.get(f"/tuning?token={TOKEN}", {"cookie": cookie}).header("location") == "/tuning"


@pytest.mark.parametrize("host", ["x/static/style.css?", "x/static/style.css#", "["])
def test_the_host_header_does_not_change_the_path(guarded, host):
    assert Client(guarded.app, host=host).get("/studies/finished/finished").status == 401


def test_programs_send_the_token_as_a_header(guarded):
    assert guarded.get("/index.json", {"authorization": f"Bearer {TOKEN}"}).status == 200


def test_the_redirect_stays_on_this_server(guarded):
    assert guarded.get(f"//evil.example?token={TOKEN}").header("location") in (None, "/evil.example")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "", "localhost.evil"])
def test_a_page_of_another_name_gets_nothing(app, host):
    assert Client(app, host=host).get("/").status == 400


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8765", "[::1]:8765"])
def test_names_of_this_machine_are_answered(app, host):
    assert Client(app, host=host).get("/").status == 200


def test_every_answer_says_what_a_browser_may_do(client):
    for path in ("/", "/studies/finished/finished", "/nowhere", "/static/page.js", "/studies/finished/finished.json"):
        answer = client.get(path)
        policy = answer.header("content-security-policy")
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert answer.header("x-content-type-options") == "nosniff"
        assert answer.header("referrer-policy") == "same-origin"


def test_the_databases_are_only_read(app):
    reader = app.state.sources.source("new").reader

    with reader.database.engine.connect() as connection, pytest.raises(Exception, match="readonly"):
        connection.exec_driver_sql("UPDATE study SET name = 'x'")


def test_below_the_prefix_of_a_proxy_every_address_has_it(serve, databases):
    name = "lab.example.org"
    client = serve(databases["finished"], databases["new"], root="/tessera", allowed=[name], name=name)
    left, seen = ["/tessera/"], set()
    while left:
        path = left.pop()
        kind = re.sub(r"\d+", "0", path.partition("?")[0])
        if kind in seen:
            continue
        seen.add(kind)
        answer = client.get(path)
        assert answer.status == 200, path
        if answer.header("content-type").startswith("text/html"):
            found = re.findall(r'(?:href|src|action|data-brush)="(/[^"#]*)', answer.text)
            assert [each for each in found if not each.startswith("/tessera/")] == [], path
            left += [each.replace("&amp;", "&") for each in found if "/compare" not in each]
            assert client.get(path.removeprefix("/tessera")).body == answer.body, "a proxy may remove the prefix"
    address = json.loads(client.get("/tessera/index.json").body)["tables"]["studies"]["rows"][0]["address"]

    assert len(seen) > 20 and address.startswith("/tessera/studies/")
    assert Client(client.app, host="evil.example").get("/tessera/").status == 400


def test_the_login_works_below_the_prefix_of_a_proxy(serve, databases):
    client = serve(databases["new"], host="0.0.0.0", token=TOKEN, root="/tessera")
    form = client.get("/tessera/tuning")
    answers = [
        client.ask("POST", "/tessera/login", {}, f"token={TOKEN}".encode()),
        client.get(f"/tessera/?token={TOKEN}"),
    ]

    assert 'action="/tessera/login"' in form.text and 'href="/tessera/static/style.css"' in form.text
    for answer in answers:
        assert (answer.status, answer.header("location")) == (303, "/tessera/")
        assert "path=/tessera" in answer.header("set-cookie").lower()


WORDS = ["studies", "finished", "trials", "~1", "hostile", "..", "%00", "compare", "space", "tuning", "explorer"]
WORDS += ["static", "3", "-1", "\u202e", "%2e%2e", "page.js"]
WORDS += ["", "9" * 30, *["lineage", "audit", "a.json", "é", "grown", "failing", "latency"]]
STUDIES = ["finished/finished", "hostile/~1", "failing/failing", "grown/grown", "latency/latency", "new/new"]
PARTS = ["", "/trials/0", "/trials/1", "/compare", "/space", "/lineage", "/audit"]
REAL = ["/", "/tuning", "/tuning/latency", "/explorer"]
REAL += [f"/studies/{study}{part}" for study in STUDIES for part in PARTS]
NAMES = ["sort", "page", "per", "x", "y", "q", "view_front", "view_importance", "trials", "state", "axis", "shade"]
NAMES += ["table", "text", "hole", "log_x", "front", "purpose", "do", "seed", "length", "sort_pieces"]
NAMES += ["page_configurations", "operation", "problem", "database", "zoo", "study", "trial"]
VALUES = ["1", "-1", "0,1", "nan,inf", "1e309", "1,2,3,4", "<b>", "%00", "flops", "bits_per_byte", "-bits_per_byte"]
VALUES += ["yes", "complete", "none", "sample"]
VALUES += ["", "'; --", "9" * 40, "a" * 400, "\u202e", "%ff", "0,1,2,3,4,5,6,7", "kind: decoder", "[" * 200]
REQUESTS = int(os.environ.get("NAS_REQUESTS", "600"))  # how many; 5000 were tried by hand


def asked(generator):
    """A random request: of a page that exists in three of four cases, with parameters that may be invalid."""
    path = generator.choice(REAL)
    if generator.random() < 0.25:
        path = "/" + "/".join(generator.choices(WORDS, k=generator.randrange(1, 6)))
    path += generator.choice(["", "", ".json", ".csv"])
    query = "&".join(f"{generator.choice(NAMES)}={generator.choice(VALUES)}" for _ in range(generator.randrange(5)))
    return path, query


def test_random_requests_neither_fail_nor_leak(client):
    generator, found = random.Random(0), collections.Counter()
    for _ in range(REQUESTS):
        path, query = asked(generator)
        answer = client.get(f"{path}?{query}")
        found[answer.status] += 1
        assert answer.status < 500, (path, query)
        assert b"Traceback" not in answer.body, (path, query)
        assert b"/dashboards/" not in answer.body, (path, query)
    assert found[200] > REQUESTS / 4 and found[404] > REQUESTS / 10, "pages that exist were asked for, and others"
