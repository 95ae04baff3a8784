"""Every page answers, as HTML, JSON and CSV, for real, hostile, empty and failed studies."""

from __future__ import annotations

import gzip
import json
import re
import warnings
from collections import Counter
from urllib.parse import quote

import pytest

from nas.store import open_store
from tests.dashboards.conftest import LOSS, REAL, add_plain, measurement

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


@pytest.mark.parametrize("page", ["", "/trials/1", "/compare?trials=0,1", "/space", "/lineage", "/audit"])
def test_each_table_and_each_figure_of_a_page_is_a_csv(client, page):
    path, _, query = f"/studies/finished/finished{page}".partition("?")
    found = json.loads(client.get(f"{path}.json?{query}").body)

    for name, table in found["tables"].items():
        lines = client.get(f"{path}.csv?{query}&table={name}").text.splitlines()
        assert len(lines) - 1 == len(table["rows"]), name
    assert {client.get(f"{path}.csv?{query}&table={name}").status for name in found["figures"]} <= {200}


def test_every_page_leads_to_all_rows_of_its_tables(client):
    page = client.get("/studies/failing/failing?state=failed&per=5&page=2&sort=-trial")
    links = re.findall(r'href="([^"]*\.csv[^"]*)"', page.text.partition("<footer")[2])
    rows = client.get(next(each for each in links if "table=trials" in each).replace("&amp;", "&")).text.splitlines()

    assert len(links) == 3 and len(rows) == 17
    assert rows[1].startswith("15,failed")


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
            assert not re.findall("[\u202a-\u202e\u2066-\u2069]", answer.text), "they would turn the words around them"
    assert "{{7*7}}" in addresses["/"].text


def test_a_trial_that_waits_for_its_next_rung_is_paused(client):
    found = json.loads(client.get("/studies/interrupted/interrupted.json?per=1000").body)
    units = {row["unit"].split()[1]: row["state"] for row in found["tables"]["units"]["rows"]}
    states = {str(row["trial"]): row["state"] for row in found["tables"]["trials"]["rows"]}

    assert units
    for number, state in units.items():
        assert states[number] == state


def test_finals_have_pages_with_their_own_names(client):
    address = "/studies/finished/finished"
    row = json.loads(client.get(f"{address}.json?purpose=final").body)["tables"]["trials"]["rows"][0]
    page = client.get(f"{address}/trials/final-1")

    assert row["final"] == 1
    assert "<h1>Final 1 <small" in page.text and "finished:final-1" in page.text
    assert f"Trial {row['trial']}" not in page.text
    assert f'href="{address}/trials/final-1">final 1</a>' in client.get(f"{address}?purpose=final").text
    found = json.loads(client.get(f"{address}.json?q=final+1").body)["tables"]["trials"]["rows"]
    assert [each["trial"] for each in found] == [row["trial"]]

    compared = client.get(f"{address}/compare?trials=0,final-1").text
    assert "<h1>Compare 0, final 1</h1>" in compared and 'value="0,final-1"' in compared
    missing = client.get(f"{address}/trials/final-99")
    assert missing.status == 404 and "no final 99. It has 3 finals." in missing.text
    assert client.get(f"{address}/compare?trials=final-0").status == 400


def test_operators_are_those_of_the_search(client):
    address = "/studies/finished/finished"
    rows = json.loads(client.get(f"{address}/lineage.json").body)["tables"]["operators"]["rows"]
    trials = json.loads(client.get(f"{address}.json?purpose=search&per=1").body)["tables"]["trials"]

    assert sum(row["trials"] for row in rows) == trials["total"]
    assert "finalist" not in {row["operator"] for row in rows}


def test_a_failure_that_a_link_chose_can_be_chosen_and_left_in_the_form(client):
    address = "/studies/failing/failing"
    (row, *_) = json.loads(client.get(f"{address}.json").body)["tables"]["failures"]["rows"]
    page = client.get(f"{address}?failure={row['kind']}").text
    (form,) = re.findall(r'<select name="failure">.*?</select>', page)

    assert f'<option value="{row["kind"]}" selected>' in form
    assert '<option value="any">' in form
    assert 'type="hidden" name="failure"' not in page.partition('id="trials"')[2]
    assert '<select name="failure">' not in client.get("/studies/new/new").text


def test_an_objective_that_is_named_parameters_is_one_column(client):
    trials = json.loads(client.get("/studies/failing/failing.json?state=complete").body)["tables"]["trials"]
    keys = [each["key"] for each in trials["columns"]]

    assert keys.count("parameters") == 1
    assert all(row["parameters"] > 0 for row in trials["rows"])


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


def test_latencies_that_were_predicted_are_shown_next_to_the_measured_ones(client):
    found = json.loads(client.get("/tuning/latency.json?sort=-measured&sort_pieces=later").body)
    slowest = found["tables"]["predictions"]["rows"][0]
    problems = json.loads(client.get("/tuning.json").body)["tables"]["problems"]["rows"]

    assert (slowest["measured"], slowest["predicted"]) == (60.0, pytest.approx(34.5))
    assert found["tables"]["pieces"]["rows"][0]["later"] == 0.25
    assert {row["operation"] for row in problems} == {"softmax"}, "the tuner has other problems"


def test_times_are_shown_against_registers_and_shared_memory(client):
    (link,) = {row["address"] for row in json.loads(client.get("/tuning.json").body)["tables"]["problems"]["rows"]}
    found = json.loads(client.get(link.replace("?", ".json?")).body)
    shown = {
        name: {each["symbol"]: (each["x"], each["y"]) for each in found["figures"][name]["series"]}
        for name in ("registers", "shared")
    }
    rows = found["tables"]["configurations"]["rows"]
    table = client.get(f"{link.replace('?', '.csv?')}&table=configurations&sort_configurations=-registers").text

    assert shown["registers"] == {"circle": ([32, 128], [1.0, 2.0]), "triangle": ([255], [2.0])}
    assert shown["shared"] == {"circle": ([1.0, 16.0], [1.0, 2.0]), "triangle": ([0.0], [2.0])}
    assert found["figures"]["registers"]["y"]["log"] is True
    assert sum(row["registers"] is None for row in rows) == 9, "unknown on one device, and what is no number"
    head, first = table.splitlines()[:2]
    assert "registers,spills,shared" in head and ",255,12,0," in first
    page = client.get(link).text
    assert "Time against registers" in page and "Time against shared memory" in page
    assert "spills registers</text>" in page and "Triangles spill registers" in page


def test_a_problem_without_registers_says_why(serve, tmp_path):
    problem = '{"device":"cpu","flags":[],"sizes":[["rows",64]]}'
    with open_store(tmp_path / "cpu.db") as store:
        store.add_measurements({"key": "one", "name": "a processor"}, [measurement("softmax", problem, 1.0)])
    page = serve(tmp_path / "cpu.db").get(f"/tuning?operation=softmax&problem={quote(problem)}").text

    assert "No device reported registers" in page and "<code>nas tune run OPERATION --again</code>" in page
    assert "Shared memory</a>" not in page, "no empty columns"


def test_two_tables_of_a_page_are_sorted_on_their_own(client):
    (link,) = {row["address"] for row in json.loads(client.get("/tuning.json").body)["tables"]["problems"]["rows"]}
    answer = json.loads(client.get(f"{link.replace('?', '.json?')}&sort=-best&sort_configurations=-milliseconds").body)
    times = [row["milliseconds"] for row in answer["tables"]["configurations"]["rows"] if row["milliseconds"]]

    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("sort=nonsense", "sort"),
        ("page=0", "page"),
        ("page=1e9", "page"),
        ("per=100000", "per"),
        ("view_front=2,1,0,1", "view_front"),
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


def test_the_nearest_trials_come_first(client):
    found = json.loads(client.get("/studies/finished/finished/trials/2.json").body)
    rows = found["tables"]["neighbours"]["rows"]

    assert 2 not in [row["trial"] for row in rows]
    assert [row["distance"] for row in rows] == sorted(row["distance"] for row in rows)
    again = json.loads(client.get(f"/studies/finished/finished/trials/{rows[0]['trial']}.json").body)
    assert rows[0]["distance"] in [row["distance"] for row in again["tables"]["neighbours"]["rows"]]


def test_the_ends_of_an_axis_are_bounded(client):
    address = "/studies/finished/finished"

    assert client.get(f"{address}?view_front=-1e308,1e308,0,1").status == 400
    for name in ("front", "history", "importance"):
        zoomed = client.get(f"{address}?view_{name}=-1e300,1e300,0,1e-320")
        assert zoomed.status == 200 and zoomed.text.count(">Show all</a>") == 1


def test_a_page_that_is_still_the_same_is_not_sent_again(client):
    address = "/studies/finished/finished?sort=flops"
    shown = client.get(address)
    again = client.get(address, {"if-none-match": shown.header("etag")})
    other = client.get(f"{address}&page=2", {"if-none-match": shown.header("etag")})

    assert (again.status, again.body) == (304, b"")
    assert other.status == 200 and other.header("etag") != shown.header("etag")


def test_large_answers_are_compressed(client):
    plain, packed = (client.get("/studies/finished/finished", {"accept-encoding": each}) for each in ("", "gzip"))

    assert gzip.decompress(packed.body) == plain.body and len(packed.body) < len(plain.body) / 4


def test_chosen_trials_are_part_of_the_address(client):
    address = "/studies/finished/finished"
    page = client.get(f"{address}?trials=1,2&sort=trial").text

    assert page.count(" checked>") == 2
    assert "trials=1%2C2" in page, "links keep them"
    as_a_form_sends = client.get(f"{address}?trials=1&sort=rung&trials=2&sort=trial").text
    assert as_a_form_sends == page
    assert len(json.loads(client.get(f"{address}/compare.json?trials=1&trials=2").text)["trials"]) == 2
    assert client.get(f"{address}?trials=1,2,3,4,5,6,7").status == 400


def test_the_values_of_a_hole_that_are_not_shown_are_counted(client):
    hole = "body[0].repeat.times"
    found = json.loads(client.get(f"/studies/finished/finished/space.json?hole={hole}&per=1000").body)
    rows = [row for row in found["tables"]["values"]["rows"] if row["hole"] == hole]
    figure = found["figures"]["marginal"]
    _means, best = figure["series"]

    assert len(rows) > 15, "the table has all values"
    known = sorted(row["best"] for row in rows if row["best"] is not None)
    assert sorted(best["y"]) == known[: len(best["y"])] and len(best["y"]) <= 12
    if len(known) > 12:
        assert f"The 12 values with the best results of {len(rows)} that were tried." in figure["note"]


def test_a_link_to_failures_keeps_special_characters(serve, tmp_path):
    kind = "a&b=1#c %\x01"
    with open_store(tmp_path / "a.db") as store:
        study = store.create_study("a", {}, "kind: decoder", 0, [{"name": "=loss", "direction": "minimize"}], "d")
        add_plain(store, study.id, 0, failure=(kind, "message"))
    client = serve(tmp_path / "a.db")
    page = client.get("/studies/a/a")
    (link,) = re.findall(r'href="(\?failure=[^"#]*)', page.text)
    chosen = client.get("/studies/a/a" + link.replace("&amp;", "&"))
    head = client.get("/studies/a/a.csv").text.splitlines()[0]

    assert chosen.status == 200
    assert "\x01" not in page.text + chosen.text
    assert "'=loss" in head.split(",")


def test_commands_to_copy_quote_the_name_of_the_study(client):
    text = client.get("/studies/hostile/~1/trials/0.json").status, client.get("/studies/hostile/~1/trials/0").text

    assert text[0] == 200
    assert "nas show &#39;a/../" in text[1]


def test_values_of_holes_are_written_as_in_a_space(serve, tmp_path):
    with open_store(tmp_path / "a.db") as store:
        study = store.create_study("a", {}, "kind: decoder", 0, LOSS, "d")
        for number in range(2):
            add_plain(store, study.id, number, choices={"bias": bool(number)})
    client = serve(tmp_path / "a.db")
    compared = json.loads(client.get("/studies/a/a/compare.json?trials=0,1").text)
    space = json.loads(client.get("/studies/a/a/space.json").text)

    assert compared["tables"]["holes"]["rows"] == [{"name": "bias", "0": "false", "1": "true"}]
    assert {row["value"] for row in space["tables"]["values"]["rows"]} == {"false", "true"}
