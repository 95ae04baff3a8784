"""Studies are read once for all browsers, and again if their database changes."""

from __future__ import annotations

import json
import shutil
import threading

import pytest

from dashboards.server import sources
from nas.errors import StoreError
from nas.store import open_store
from tests.dashboards.conftest import LOSS, add_plain


@pytest.fixture
def opened(tmp_path):
    """A study in a database of its own, as the server keeps it, that is read again at every look."""
    with open_store(tmp_path / "a.db") as store:
        store.create_study("a", {}, "kind: decoder", 0, LOSS, "d")
    shown = sources.Sources([str(tmp_path / "a.db")])
    study = shown.study("a", "a")
    yield study
    shown.close()


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(sources, "MOST", 0.0)  # seconds between two readings


def test_a_large_study_is_read_while_its_page_and_the_list_say_so(serve, databases, monkeypatch):
    may_read, read = threading.Event(), sources.tabulated
    monkeypatch.setattr(sources, "LARGE", 1)
    monkeypatch.setattr(sources, "tabulated", lambda *given: (may_read.wait(60), read(*given))[1])
    client = serve(databases["finished"])
    first, page = json.loads(client.get("/index.json").body), client.get("/studies/finished/finished").text
    may_read.set()
    client.app.state.sources.study("finished", "finished")._reading.join(60)
    then, whole = json.loads(client.get("/index.json").body), client.get("/studies/finished/finished").text

    assert "Reading 40 trials" in page and 'http-equiv="refresh"' in page
    assert "Pareto front" in whole and 'http-equiv="refresh"' not in whole

    (before,), (after,) = (each["tables"]["studies"]["rows"] for each in (first, then))
    assert (before["trials"], before["best"], first["reading"]) == (40, None, ["finished"])
    assert (after["trials"], then["reading"]) == (40, []) and after["best"] and after["front"] and after["history"]


def test_results_are_computed_once_until_the_study_grows(opened):
    made: list[int] = []

    def computed(of=None):
        return opened.remember("key", lambda: made.append(1) or len(made), of=of)

    first = [computed(), computed()]
    with open_store(opened.source.where) as store:
        add_plain(store, opened.study.id, 0)
    then = [computed(), computed()]

    assert (first, then) == ([1, 1], [2, 2])
    assert len(opened.table) == 1
    assert [computed(of="x"), computed(of="x"), computed(of="y")] == [3, 3, 4]


def test_the_cache_is_bounded(opened, monkeypatch):
    monkeypatch.setattr(sources, "KEPT", 2)
    made: list[str] = []
    for key in "abaca":
        opened.remember(key, lambda key=key: made.append(key))

    assert made == ["a", "b", "c"], "the ones that were asked for last are kept"


def test_two_threads_compute_a_result_once(opened):
    made, start = [], threading.Barrier(2)

    def ask():
        start.wait()
        opened.remember("key", lambda: made.append(1))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)

    assert made == [1]


def test_a_database_that_is_replaced_is_opened_again(serve, databases, tmp_path):
    path = tmp_path / "a.db"
    shutil.copy(databases["finished"], path)
    client = serve(path)
    before = client.get("/studies/a/finished").status
    path.unlink()
    gone = client.get("/studies/a/finished.json")
    shutil.copy(databases["grown"], path)
    after = client.get("/studies/a/grown").status, client.get("/studies/a/finished").status

    assert before == 200
    assert gone.status == 503 and "There is no study database" in gone.text
    assert after == (200, 404)


def test_a_file_that_is_replaced_by_an_earlier_copy_is_read_from_its_beginning(opened, tmp_path):
    shutil.copy(tmp_path / "a.db", tmp_path / "copy.db")
    with open_store(tmp_path / "a.db") as store:
        add_plain(store, opened.study.id, 0)
    before = len(opened.table)
    for end in ("-wal", "-shm"):
        (tmp_path / f"a.db{end}").unlink(missing_ok=True)
    (tmp_path / "copy.db").replace(tmp_path / "a.db")

    assert (before, len(opened.table)) == (1, 0)


def test_a_study_that_is_deleted_is_told(opened):
    with open_store(opened.source.where) as store:
        store.delete_study(opened.study.id)
        store.create_study("b", {}, "kind: decoder", 0, LOSS, "d")

    with pytest.raises(StoreError, match="no longer"):
        opened.look()
    assert [each.study.name for each in opened.source.studies()] == ["b"]


def test_a_verdict_that_is_stored_after_the_last_unit_is_news(opened):
    before, again = opened.look(), opened.look()
    with open_store(opened.source.where) as store:
        store.add_verdict(opened.study.id, {"word": "better"})

    assert before == again < opened.look()
