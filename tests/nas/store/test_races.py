"""Several writers at once, writers that are killed, and a PostgreSQL that goes away."""

import contextlib
import multiprocessing
import os
import signal
import sqlite3
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import event

from nas.errors import StoreError
from nas.store import Refusal, TrialAdded, open_store
from nas.store.database.engine import Database, parse

OBJECTIVES = [{"name": "bits", "direction": "minimize"}]


def propose(store, study_id, number, **changes):
    values = {"seed": 0, "purpose": "search", "operator": "random", "choices": {}, "known_results": 0, "steps": 1}
    return store.add_trial(study_id, number, (f"{number:04x}", f"width: {number}"), **(values | changes))


def work(url, study_id, owner, limit, proposed=None):
    """A whole small search: propose, train, record, until the limit; then what others left. -> numbers it recorded."""
    recorded = []
    with open_store(url) as store:
        while True:
            number = store.next_number(study_id)
            added = propose(store, study_id, number, owner=owner, limit=limit)
            if isinstance(added, TrialAdded):
                units = [added.unit]
            elif added.reason is Refusal.LIMIT_REACHED:
                units = store.lease(study_id, owner, 1)
                if not units:
                    return recorded
            else:
                continue
            for unit in units:
                if proposed is not None:
                    proposed.put(unit.number)
                if store.finish(unit.id, owner, unit.attempt, {"bits": 1.0}, {"tokens": 1.0}, last=True):
                    recorded.append(unit.number)


def test_four_searches_share_the_work_and_no_trial_runs_twice(url, store, study):
    with ThreadPoolExecutor(4) as pool:
        shares = list(pool.map(lambda owner: work(url, study.id, owner, 24), ["a", "b", "c", "d"]))

    assert Counter(number for share in shares for number in share) == Counter(range(24))
    results = store.results_since(study.id)
    assert [result.sequence for result in results] == list(range(1, 25))
    assert store.study("quick").sequence == 24


def test_a_queue_is_shared_out_and_no_unit_twice(store, study):
    for number in range(30):
        propose(store, study.id, number)
    barrier = threading.Barrier(4)

    def take(owner):
        barrier.wait()
        taken = []
        while units := store.lease(study.id, owner, 2):
            taken += [unit.number for unit in units]
        return taken

    with ThreadPoolExecutor(4) as pool:
        assert Counter(number for share in pool.map(take, "abcd") for number in share) == Counter(range(30))


def test_a_reader_never_sees_results_with_a_gap(url, store, study):
    """Whoever has read up to a place has read all before it: places are given in the order of the commits."""
    done = threading.Event()

    def read():
        seen = []
        with open_store(url) as reader:
            while not done.is_set() or len(seen) < 24:
                seen += [result.sequence for result in reader.results_since(study.id, seen[-1] if seen else 0)]
        return seen

    with ThreadPoolExecutor(4) as pool:
        reading = pool.submit(read)
        try:
            list(pool.map(lambda owner: work(url, study.id, owner, 24), "abc"))
        finally:
            done.set()
        assert reading.result() == list(range(1, 25))


def test_a_writer_killed_at_any_moment_leaves_a_whole_database(url, store, study):
    context = multiprocessing.get_context("fork")  # which saves the imports
    proposed = context.Queue()
    for round_ in range(2):
        writer = context.Process(target=work, args=(url, study.id, f"writer {round_}", 10_000, proposed))
        writer.start()
        for _ in range(10):
            proposed.get(timeout=60)
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        proposed = context.Queue()

    trials, results = store.trials(study.id), store.results_since(study.id)
    assert [trial.number for trial in trials] == list(range(len(trials)))
    assert [result.sequence for result in results] == list(range(1, len(results) + 1))
    assert all(result.values == {"bits": 1.0} for result in results)
    assert 0 <= len(trials) - len(results) <= 2  # of each killed writer at most the unit in its hands
    left = store.lease(study.id, "next", 5, dead_owners=["writer 0", "writer 1"])
    assert len(left) == len(trials) - len(results)
    for unit in left:
        assert store.finish(unit.id, "next", unit.attempt, {"bits": 1.0}, last=True)


@pytest.fixture
def remote(postgresql):
    with open_store(postgresql) as store:
        yield store


def test_a_connection_that_the_server_ends_is_replaced(server, remote, study_of):
    first = propose(remote, study_of.id, 0, owner="a").unit
    killed = []

    def end_all(connection, *_):
        if not killed:
            killed.append(True)
            server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname LIKE 'test_%'")

    event.listen(remote.database.engine, "before_cursor_execute", end_all)
    assert remote.finish(first.id, "a", 1, {"bits": 1.0}, last=True) == 1
    assert killed
    assert len(remote.results_since(study_of.id)) == 1


def test_a_deadlock_is_tried_again(remote, study_of):
    """Two transactions take the rows of two trials in opposite order: PostgreSQL ends one, which then runs again."""
    ids = [propose(remote, study_of.id, number).trial_id for number in range(2)]
    both_hold_one, runs = threading.Barrier(2), Counter()

    def take(order):
        def both(connection):
            runs[tuple(order)] += 1
            for position, trial_id in enumerate(order):
                connection.exec_driver_sql(f"UPDATE trial SET known_results = known_results + 1 WHERE id = {trial_id}")
                if position == 0 and runs.total() <= 2:
                    both_hold_one.wait(timeout=30)

        remote.database.write(both)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(take, [ids, ids[::-1]]))
    assert runs.total() == 3
    assert [trial.known_results for trial in remote.trials(study_of.id)] == [2, 2]


def test_a_writer_of_sqlite_takes_the_lock_before_it_reads_and_a_reader_takes_none(tmp_path):
    database = Database(parse(tmp_path / "a.db"))

    def locked(_connection):
        with contextlib.closing(sqlite3.connect(tmp_path / "a.db", timeout=0)) as other:
            try:
                other.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                return "locked" in str(error)
            return False

    assert database.write(locked) and not database.read(locked)
    database.close()


@pytest.mark.parametrize("limit", ["lock_timeout", "statement_timeout"])
def test_what_the_server_ends_because_it_takes_too_long_is_tried_again(remote, study_of, limit):
    unit = propose(remote, study_of.id, 0, owner="a").unit
    with remote.database.engine.connect() as holder:
        holder.exec_driver_sql(f"ALTER DATABASE {remote.database.engine.url.database} SET {limit} = 100")
        holder.commit()
        remote.database.engine.pool.dispose()  # the limit is that of new connections
        holder.exec_driver_sql("SELECT * FROM unit FOR UPDATE")
        with ThreadPoolExecutor(1) as pool:
            renewed = pool.submit(remote.renew, [unit.id], "a")
            with pytest.raises(TimeoutError):
                renewed.result(timeout=0.5)
            holder.rollback()
            assert renewed.result(timeout=30) == [unit.id]


def test_a_transaction_that_was_suspended_for_too_long_for_the_server_is_tried_again(remote):
    """The server closes the connection of a process that sleeps in a transaction."""
    calls = []

    def work(connection):
        calls.append(connection)
        connection.exec_driver_sql("SET idle_in_transaction_session_timeout = 50")
        if len(calls) == 1:
            time.sleep(0.2)
        return connection.exec_driver_sql("SELECT 1").scalar_one()

    assert remote.database.write(work) == 1 and len(calls) == 2


def test_a_server_that_is_read_only_for_a_while_is_waited_for(remote, study_of):
    """As a standby is until it becomes the primary server."""
    unit = propose(remote, study_of.id, 0, owner="a").unit
    name = remote.database.engine.url.database
    with remote.database.engine.connect() as administrator:
        administrator.exec_driver_sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        administrator.commit()
        remote.database.engine.pool.dispose()  # new connections are read-only
        with ThreadPoolExecutor(1) as pool:
            finished = pool.submit(remote.finish, unit.id, "a", 1, {"bits": 1.0}, last=True)
            with pytest.raises(TimeoutError):
                finished.result(timeout=0.3)
            administrator.exec_driver_sql(f"ALTER DATABASE {name} RESET default_transaction_read_only")
            administrator.commit()
            assert finished.result(timeout=50) == 1  # through a new connection


def test_the_kernel_is_told_to_give_up_connections_that_no_answer_comes_from():
    asked = {}

    def note(dialect, record, arguments, named):
        asked.update(named)
        raise ConnectionAbortedError

    database = Database(parse("postgresql://user@host/name?keepalives_idle=99"))
    event.listen(database.engine, "do_connect", note)
    with pytest.raises(ConnectionAbortedError):
        database.engine.connect()
    assert asked["tcp_user_timeout"] > 0 and asked["keepalives_count"] > 0
    assert asked["keepalives_idle"] == "99"  # a URL may say otherwise


def test_a_server_that_stays_away_is_an_error_in_the_end(server, postgresql):
    with open_store(postgresql, retry=0.2) as store:
        server.execute("SELECT 1")
        with server.stopped(), pytest.raises(StoreError, match=r"does not answer.*nothing recorded is lost"):
            store.studies()
        assert store.studies() == []


@pytest.fixture
def study_of(remote):
    return remote.create_study("quick", {}, "kind: decoder", 0, OBJECTIVES)


def _hog(url, seconds, started):
    """Writes again and again, each time holding the lock for a moment and taking it again at once."""
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE study SET seed = seed + 1")
        started.set()
        time.sleep(0.03)
        connection.execute("COMMIT")
    connection.close()


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_writer_does_not_give_up_while_others_make_progress(url, study):
    """8 of 48 busy processes gave up after the wait, although every lock was short."""
    started = threading.Event()
    hog = threading.Thread(target=_hog, args=(url, 1.0, started))
    hog.start()
    assert started.wait(30)
    with open_store(url, wait=0.2) as store:
        propose(store, study.id, 0)
        assert store.next_number(study.id) == 1
    hog.join()
