"""Browsers that follow a study share one look at it, and are told of changes only as often as that costs little."""

from __future__ import annotations

import asyncio
import shutil
import time

import pytest

from dashboards.server import events
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


def test_all_who_follow_a_study_share_one_look_and_hear_of_a_change(study, tmp_path, monkeypatch):
    monkeypatch.setattr(events, "PAUSE", 0.01)

    async def followed():
        made = Events()
        streams = [made.stream(study) for _ in range(3)]
        first = [[await anext(each), await anext(each)] for each in streams]
        shared = len(made._watches)
        study._next_look = 0.0
        with open_store(tmp_path / "new.db") as store:
            add_failed(store, store.study("new").id, "crashed")
        then = await asyncio.gather(*(anext(each) for each in streams))
        for each in streams:
            await each.aclose()
        return first, shared, then, made._watches

    first, shared, then, left = asyncio.run(followed())

    assert [each[0] for each in first] == ["retry: 3000\n\n"] * 3
    assert shared == 1
    assert len({each[1] for each in first}) == 1
    assert len(set(then)) == 1
    assert then[0].startswith("event: changed")
    assert left == {}


def test_streams_end_with_the_server(study):
    async def ended():
        made = Events()
        stream = made.stream(study)
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
        return [line async for line in Events().stream(study)]

    assert asyncio.run(ended()) == ["retry: 3000\n\n"]
    assert told == [study.address]


def test_the_next_announcement_waits_until_the_answers_to_the_last_one_cost_little(study):
    study.announced()
    assert study.can_announce
    with study.spending():
        until = time.thread_time() + 0.3
        while time.thread_time() < until:
            pass
    assert not study.can_announce
    study.announced()
    assert study.can_announce
