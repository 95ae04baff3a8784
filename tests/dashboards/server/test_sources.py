"""Studies are read once, next to the pages that wait for them, and read again if their database changes."""

from __future__ import annotations

import json
import re
import shutil
import threading

import pytest

from dashboards.analysis.lineage import lineage
from nas.store import open_store
from tests.dashboards.conftest import Client


def test_a_large_study_is_read_while_a_page_says_so(databases, monkeypatch):
    from dashboards.pages import space
    from dashboards.server import sources
    from dashboards.server.app import application

    monkeypatch.setattr(sources, "LARGE", 1)
    made = application([databases["finished"]], costs=False)
    client = Client(made)
    first = client.get("/studies/finished/finished").text
    made.state.sources.study("finished", "finished")._preparing.join(60)
    then = client.get("/studies/finished/finished").text
    computed: list[str] = []
    monkeypatch.setattr(space, "importances", lambda *given: computed.append("importances"))
    objectives = made.state.sources.study("finished", "finished").study.objectives
    others = [client.get(f"/studies/finished/finished?y={each['name']}").status for each in objectives]
    made.state.sources.close()

    assert 'http-equiv="refresh"' in first
    assert 'http-equiv="refresh"' not in then
    assert "Pareto front" in then
    assert set(others) == {200} and len(others) > 1 and computed == [], (
        "what takes long was computed for all objectives"
    )


def test_the_list_shows_counts_until_a_large_study_is_read(databases, monkeypatch):
    from dashboards.server import sources
    from dashboards.server.app import application

    may_read = threading.Event()
    read = sources.tabulated
    monkeypatch.setattr(sources, "LARGE", 1)
    monkeypatch.setattr(sources, "tabulated", lambda *given: (may_read.wait(60), read(*given))[1])
    made = application([databases["finished"]], costs=False)
    client = Client(made)
    study = made.state.sources.study("finished", "finished")
    first, version = client.get("/").text, made.state.sources.overview.version
    waiting = client.get("/studies/finished/finished").text
    may_read.set()
    whole = json.loads(client.get("/index.json").body)
    made.state.sources.overview._next_look = 0.0
    news = made.state.sources.overview.look()
    then = client.get("/").text
    study._preparing.join(60)
    made.state.sources.close()

    (row,) = whole["tables"]["studies"]["rows"]
    for text in (first, waiting):
        assert f">{row['trials']}<" in re.sub(r"\s*of [0-9,]+<", "<", text) and row["state"] in text
    assert "for the first time" in first and "for the first time" not in then
    assert row["best"] and row["front"] and whole["reading"] == []
    assert '<svg class="spark"' in then and '<svg class="spark"' not in first
    assert news > version, "browsers that follow the list are told"


def test_the_list_does_not_wait_while_a_page_of_a_study_is_computed(databases):
    from dashboards.server.app import application

    made = application([databases["finished"]], costs=False)
    client = Client(made)
    before = client.get("/").text
    study = made.state.sources.study("finished", "finished")
    held, done = threading.Event(), threading.Event()

    def compute() -> None:
        with study.free():
            held.set()
            done.wait(60)

    thread = threading.Thread(target=compute)
    thread.start()
    held.wait(60)
    made.state.sources.overview._next_look = 0.0
    now = client.get("/").text
    done.set()
    thread.join(60)
    made.state.sources.close()

    assert now == before


def test_many_pages_do_not_displace_what_takes_long(databases, monkeypatch):
    from dashboards.pages import trial
    from dashboards.server import sources
    from dashboards.server.app import application

    read: list[None] = []
    monkeypatch.setattr(trial, "lineage", lambda *given: (read.append(None), lineage(*given))[1])
    monkeypatch.setattr(sources, "KEPT", 2)
    monkeypatch.setattr(sources, "KEPT_RESULTS", 2)
    made = application([databases["finished"]], costs=False)
    client = Client(made)
    for number in range(6):
        assert client.get(f"/studies/finished/finished/trials/{number}.json").status == 200
    made.state.sources.close()

    assert len(read) == 1


def test_a_database_that_is_replaced_is_opened_again(databases, tmp_path):
    from dashboards.server.app import application

    path = tmp_path / "a.db"
    shutil.copy(databases["finished"], path)
    made = application([str(path)], costs=False)
    client = Client(made)
    before = client.get("/studies/a/finished").status
    path.unlink()
    gone = client.get("/studies/a/finished.json")
    shutil.copy(databases["grown"], path)
    after = client.get("/studies/a/grown").status, client.get("/studies/a/finished").status
    made.state.sources.close()

    assert before == 200
    assert gone.status == 503
    assert "There is no study database" in gone.text
    assert after == (200, 404)


def test_a_study_that_is_deleted_is_told(tmp_path):
    from dashboards.server import sources
    from nas.errors import StoreError

    objectives = [{"name": "loss", "direction": "minimize"}]
    with open_store(tmp_path / "a.db") as store:
        study = store.create_study("a", {}, "kind: decoder", 0, objectives, "d")
        shown = sources.Sources([str(tmp_path / "a.db")])
        kept = shown.study("a", "a")
        store.delete_study(study.id)
        store.create_study("b", {}, "kind: decoder", 0, objectives, "d")
    with pytest.raises(StoreError, match="no longer"):
        kept.look()
    assert [each.study.name for each in shown.all()[0].studies()] == ["b"]
    shown.close()


def test_a_verdict_that_is_stored_after_the_last_unit_is_news(databases, tmp_path):
    from dashboards.server.sources import Sources

    path = tmp_path / "finished.db"
    shutil.copy(databases["finished"], path)
    with open_store(path) as store:
        sources = Sources([str(path)])
        cache = sources.study("finished", "finished")
        before = cache.look()
        cache._next_look = 0.0
        again = cache.look()
        store.add_verdict(cache.study.id, {"word": "better"})
        cache._next_look = 0.0
        after = cache.look()
    sources.close()

    assert before == again < after
