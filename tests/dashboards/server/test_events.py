"""Browsers that follow a study share one look at it, and are told of changes only as often as that costs little."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import zlib

import pytest

from dashboards.server import budget, events
from dashboards.server.events import Events
from dashboards.server.sources import Sources
from nas.store import open_store
from tests.dashboards.conftest import add_failed


@pytest.fixture
def study(databases, tmp_path):
    shutil.copy(databases["new"], tmp_path / "new.db")
    sources = Sources([str(tmp_path / "new.db")])
    yield sources.study("new", "new")
    sources.close()


def followed(made, study, draw):
    return made.follow(study, "page", draw)


def test_all_who_follow_a_view_share_one_look_and_get_the_same_parts(study, tmp_path, monkeypatch):
    monkeypatch.setattr(events, "PAUSE", 0.01)
    texts = {"same": "a", "grows": "b"}
    drawn = []

    def draw():
        drawn.append(1)
        return study.look(), dict(texts)

    async def follow():
        made = Events()
        followers = [await followed(made, study, draw) for _ in range(3)]
        streams = [each.lines() for each in followers]
        first = [[await anext(each), await anext(each)] for each in streams]
        watches, before = len(made._watches), len(drawn)
        study._next_look = 0.0
        with open_store(tmp_path / "new.db") as store:
            add_failed(store, store.study("new").id, "crashed")
        texts["grows"] = "c"
        then = await asyncio.gather(*(anext(each) for each in streams))
        for each in followers:
            each.leave()
        return first, watches, len(drawn) - before, then, made._watches

    first, watches, draws, then, left = asyncio.run(follow())

    assert [each[0].text for each in first] == ["retry: 3000\n\n"] * 3
    assert (watches, draws, left) == (1, 1, {})
    assert len({each[1].text for each in first}) == 1
    assert len(set(then)) == 1, "the same object, so that its bytes are made once"
    told = json.loads(then[0].text.partition("data: ")[2])
    assert told["parts"] == {"grows": "c"}
    assert told["before"] == json.loads(first[0][1].text.partition("data: ")[2])["version"] < told["version"]
    stream = zlib.decompressobj(zlib.MAX_WBITS | 16)
    assert stream.decompress(events.GZIP + first[0][1].packed + then[0].packed).decode().endswith(then[0].text)


def test_a_view_that_cannot_be_drawn_makes_its_browsers_ask(study):
    view = events.Followed(lambda: 1 / 0, (7, {"a": "b"}))
    view.redraw()

    assert view.version > 7
    assert "parts" not in view.line.text


def test_a_study_that_goes_away_is_told_to_those_who_follow_it(study, tmp_path, monkeypatch):
    monkeypatch.setattr(events, "PAUSE", 0.01)

    async def follow():
        follower = await followed(Events(), study, lambda: (study.look(), {}))
        stream = follower.lines()
        await anext(stream), await anext(stream)
        with open_store(tmp_path / "new.db") as store:
            store.delete_study(store.study("new").id)
        study._next_look = 0.0
        told = await anext(stream)
        follower.leave()
        return told.text

    assert "no longer in this database" in asyncio.run(follow())


def test_streams_end_with_the_server(study):
    async def ended():
        made = Events()
        stream = (await followed(made, study, lambda: (study.look(), {}))).lines()
        await anext(stream)
        await anext(stream)
        made.close()
        return [line async for line in stream]

    assert asyncio.run(ended()) == []


def test_a_look_that_fails_is_logged_and_ends_the_streams(study, monkeypatch):
    def broken():
        raise ZeroDivisionError

    told: list[str] = []
    monkeypatch.setattr(study, "look", broken)
    monkeypatch.setattr(events.log, "exception", lambda _text, address: told.append(address))

    async def ended():
        return [line.text async for line in (await followed(Events(), study, lambda: (1, {}))).lines()][:1]

    assert asyncio.run(ended()) == ["retry: 3000\n\n"]
    assert told == [study.address]


def test_looks_wait_until_what_was_spent_is_little_of_the_time(monkeypatch):
    clock, load = [100.0], [0.0]
    monkeypatch.setattr(budget.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(budget.os, "getloadavg", lambda: (load[0], 0.0, 0.0))
    made = budget.Budget()
    began = made.is_left
    made.spend(budget.AT_ONCE + 0.1)
    waits = []
    for load[0] in (0.0, 4.0 * os.cpu_count()):
        start = clock[0]
        while not made.is_left:
            clock[0] += 0.5
        waits.append(clock[0] - start)
        made.spend(0.1)
    made.spend(1e6)
    clock[0] += budget.MOST_SILENT + 1

    assert began
    assert waits == pytest.approx([0.1 * budget.FOLLOWING, 4 * 0.1 * budget.FOLLOWING], abs=2)
    assert made.is_left, "a change is told in the end, on a busy machine too"


def test_a_file_that_is_replaced_by_an_earlier_copy_is_read_from_its_beginning(study, tmp_path):
    shutil.copy(tmp_path / "new.db", tmp_path / "copy.db")
    with open_store(tmp_path / "new.db") as store:
        add_failed(store, store.study("new").id, "crashed")
    before = len(study.table)
    for end in ("-wal", "-shm"):
        (tmp_path / f"new.db{end}").unlink(missing_ok=True)
    (tmp_path / "copy.db").replace(tmp_path / "new.db")
    study._next_look = 0.0

    assert (before, len(study.table)) == (1, 0)
