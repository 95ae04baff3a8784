"""Every page answers, as HTML, JSON and CSV, for real, hostile, empty and failed studies."""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter

import pytest

from tests.dashboards.conftest import REAL, Client

STUDIES = [*(f"/studies/{name}/{name}" for name in REAL), "/studies/new/new", "/studies/hostile/~1"]


@pytest.fixture(scope="session")
def addresses(client):
    """All addresses that the pages link to, from the list of studies on."""
    found, left, seen = {}, ["/"], Counter()
    while left:
        address = left.pop()
        path = address.partition("#")[0]
        if path in found or len(found) > 400:
            continue
        kind = re.sub(r"\d+", "0", path.partition("?")[0])
        if seen[kind] > 2:
            continue  # other trials, orders and filters of one page
        seen[kind] += 1
        found[path] = client.get(path)
        if (found[path].header("content-type") or "").startswith("text/html"):
            left += [each.replace("&amp;", "&") for each in re.findall(r'href="(/[^"]*)"', found[path].text)]
    return found


def test_every_link_leads_to_a_page(addresses):
    assert {path: answer.status for path, answer in addresses.items() if answer.status != 200} == {}
    assert len(addresses) > 40


@pytest.mark.parametrize("address", STUDIES)
def test_a_study_has_the_same_numbers_as_json_and_csv(client, address):
    page, plain, table = (client.get(address + end) for end in ("", ".json", ".csv"))

    assert (page.status, plain.status, table.status) == (200, 200, 200)
    rows = json.loads(plain.body)["tables"]["trials"]["rows"]
    assert len(table.text.splitlines()) == len(rows) + 1
    for row in rows[:3]:
        assert f"/trials/{row['trial']}" in page.text


def test_pages_are_valid_html(addresses):
    html5lib = pytest.importorskip("html5lib")
    checked = set()
    for path, answer in addresses.items():
        kind = re.sub(r"\d+", "0", path.partition("?")[0])
        if (answer.header("content-type") or "").startswith("text/html") and kind not in checked:
            checked.add(kind)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                parser = html5lib.HTMLParser()
                parser.parse(answer.body)
            assert parser.errors == [], path


def test_texts_of_the_database_are_escaped(addresses):
    hostile = [answer for path, answer in addresses.items() if path.startswith("/studies/hostile")]

    assert hostile
    for answer in hostile:
        if answer.header("content-type").startswith("text/html"):
            assert "<script>alert" not in answer.text
    assert "{{7*7}}" in addresses["/"].text


def test_ids_are_unique_on_a_page(addresses):
    for path, answer in addresses.items():
        ids = re.findall(r'\bid="([^"]+)"', answer.text)
        assert len(ids) == len(set(ids)), path


def test_a_csv_cannot_start_a_formula(client):
    from dashboards.server.answers import as_csv
    from dashboards.view import Column, Table

    table = Table(columns=[Column("a", "A"), Column("b", "B")], rows=[{"a": "=1+1", "b": -3}])
    assert as_csv(table).splitlines()[1] == "'=1+1,-3"


def test_the_view_is_part_of_the_address(client):
    address = "/studies/finished/finished"
    shown = client.get(f"{address}.json?sort=-bits_per_byte&per=3&state=complete&purpose=search")
    rows = json.loads(shown.body)["tables"]["trials"]["rows"]
    values = [row["bits_per_byte"] for row in rows]

    assert len(rows) == 3
    assert values == sorted(values, reverse=True)
    assert {row["state"] for row in rows} == {"complete"}


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("sort=nonsense", "sort"),
        ("page=0", "page"),
        ("page=1e9", "page"),
        ("per=100000", "per"),
        ("zoom_x=2,1", "zoom_x"),
        ("x=flopz", "Did you mean 'flops'"),
        ("q=" + "x" * 300, "q must have"),
    ],
)
def test_a_parameter_that_is_not_valid_is_explained(client, query, word):
    answer = client.get(f"/studies/finished/finished.json?{query}")

    assert answer.status == 400
    assert word in json.loads(answer.body)["error"]


def test_an_address_that_leads_nowhere_names_the_nearest(client):
    assert "Did you mean" in client.get("/studies/finished/finishd").text
    assert client.get("/studies/finished/finished/trials/999").status == 404
    assert client.get("/static/../app.py").status == 404
    assert client.get("/static/%2e%2e%2fapp.py").status == 404


def test_a_large_study_is_read_while_a_page_says_so(databases, monkeypatch):
    from dashboards.server import sources
    from dashboards.server.app import application

    monkeypatch.setattr(sources, "LARGE", 1)
    made = application([databases["finished"]], costs=False)
    client = Client(made)
    first = client.get("/studies/finished/finished").text
    made.state.sources.study("finished", "finished")._preparing.join(60)
    then = client.get("/studies/finished/finished").text
    made.state.sources.close()

    assert 'http-equiv="refresh"' in first
    assert 'http-equiv="refresh"' not in then
    assert "Pareto front" in then
