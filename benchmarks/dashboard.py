"""The dashboard on a large study, compared with optuna-dashboard on the same trials.

python -m benchmarks.dashboard [--trials 100000] [--storage FILE] [--browsers 50] [--json]
python -m benchmarks.dashboard --requests [--trials 100000] [--storage FILE] [--json]

For each server: seconds until it accepts connections, seconds for the first page and for its complete numbers, seconds
and bytes of the same page again, the resident memory, and seconds for another page of the table and for a zoom. For
ours also the CPU time of open pages while nothing happens. Our server reads a large study once; until then its page
says so. optuna-dashboard is measured if it is installed; it gets the same trials, objectives and parameters.

--requests: CPU time of our server for each kind of request on a study that it has read: pages, orders, filters, zooms
and choices, each for the first time.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import psutil

from benchmarks.support.report import report

STUDY = "large"
PATIENCE = 600.0  # seconds for one answer
PAUSE = 4.0  # seconds between two requests of an open page
QUIET = 15.0  # seconds for which the cost of open pages is measured
# Requests that a reader may make. {} is replaced by a different number each time, so no answer is in the cache.
REQUESTS = {
    "another page of the table": "?page={}",
    "order by an objective": "?sort=-bits_per_byte&page={}",
    "1,000 rows": "?per=1000&page={}",
    "filter by state": "?state=failed&page={}",
    "only the front": "?front=yes&page={}",
    "search for a hash": "?q=a{}",
    "JSON of a page": ".json?sort=-flops&page={}",
    "CSV of a page": ".csv?table=trials&per=1000&page={}",
    "zoom": "?view_front=1e10,2.{}e10,2.7,3",
    "a trial": "/trials/{}",
    "comparison of four": "/compare?trials={},500,70000,99",
    "another objective": "?y=flops&x=bits_per_byte",
    "another quantity across": "?x=parameters",
    "colours": "?shade=flops",
    "linear axes": "?log_x=no&log_y=no",
    "without dominated trials": "?dominated=no",
    "progress over seconds": "?axis=seconds",
    "lineage": "/lineage",
    "lineage, another objective": "/lineage?objective=flops",
    "space": "/space",
    "space, another hole": "/space?hole=width",
    "audit": "/audit",
}


@contextlib.contextmanager
def serving(arguments: list[str], port: int) -> Iterator[tuple[psutil.Process, float]]:
    """(the process, seconds until it accepted a connection) of a server. Raises RuntimeError if it ends at once."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ
    )
    try:
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            if process.poll() is not None:
                raise RuntimeError(f"{' '.join(arguments)} ended with {process.returncode}.")
            time.sleep(0.05)
        yield psutil.Process(process.pid), time.perf_counter() - began
    finally:
        process.terminate()
        process.wait(20)


def get(port: int, path: str) -> tuple[float, int]:
    """(seconds, bytes transferred) of an answer. Raises RuntimeError if it is an error."""
    began = time.perf_counter()
    size = len(content(port, path, "gzip"))
    return time.perf_counter() - began, size


def content(port: int, path: str, encoding: str = "identity") -> bytes:
    """The body of an answer as sent. Raises RuntimeError if the answer is an error."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
        connection.request("GET", path, headers={"Accept-Encoding": encoding})
        answer = connection.getresponse()
        found = answer.read()
    if answer.status >= 400:
        raise RuntimeError(f"{path} answered {answer.status}.")
    return found


def ours(storage: str, port: int, browsers: int) -> dict:
    """The row of our server."""
    place = f"/studies/{Path(storage.removeprefix('sqlite:///')).stem}/{STUDY}"
    arguments = ["-m", "nas", "dashboard", "--storage", storage, "--port", str(port)]
    with serving(arguments, port) as (process, ready):
        first, _ = get(port, place)
        complete = time.perf_counter()
        get(port, f"{place}.json")
        complete = time.perf_counter() - complete
        time.sleep(1)
        get(port, place)
        again, size = get(port, place)
        other = sorted(get(port, f"{place}?page={page}&sort=-flops")[0] for page in range(2, 7))[2]
        zoom = sorted(get(port, f"{place}?view_front=1e10,{2 + turn / 10}e10,2.7,3")[0] for turn in range(5))[2]
        memory = process.memory_info().rss / 2**20
        share = watched(process, port, place, browsers)
    row = {"server": "nas dashboard", "ready s": ready, "first page s": first, "again s": again, "MB": size / 1e6}
    row |= {"complete s": complete}
    return row | {"other page s": other, "zoom s": zoom, "MiB": round(memory), "idle CPU %": 100 * max(0.0, share)}


def requests(storage: str, port: int) -> Iterator[dict]:
    """CPU milliseconds, elapsed milliseconds, and kilobytes transferred of each kind of request."""
    place = f"/studies/{Path(storage.removeprefix('sqlite:///')).stem}/{STUDY}"
    with serving(["-m", "nas", "dashboard", "--storage", storage, "--port", str(port)], port) as (process, _):
        wait_until_read(process, port, place)
        for name, query in REQUESTS.items():
            addresses = [query.format(number) for number in range(2, 7)] if "{}" in query else [query]
            before = process.cpu_times()
            answers = [get(port, place + each) for each in addresses]
            after = process.cpu_times()
            spent = (after.user + after.system - before.user - before.system) / len(answers)
            seconds, size = (sorted(each)[len(answers) // 2] for each in zip(*answers))
            yield {"request": name, "CPU ms": round(1e3 * spent), "ms": round(1e3 * seconds), "kB": round(size / 1e3)}


def wait_until_read(process: psutil.Process, port: int, place: str) -> None:
    """Wait until the server has read a large study, and has finished the work that no page waits for."""
    while b'http-equiv="refresh"' in content(port, place):
        time.sleep(1)
    while quiet_share(process) > 0.05:
        time.sleep(1)


def quiet_share(process: psutil.Process) -> float:
    """The share of a core that the process uses now."""
    return process.cpu_percent(1.0) / 100


def watched(process: psutil.Process, port: int, path: str, browsers: int) -> float:
    """The share of a core that the server needs while `browsers` pages are open and nothing changes."""
    ended = threading.Event()
    for _ in range(browsers):
        threading.Thread(target=follow, args=(port, path, ended), daemon=True).start()
    time.sleep(2 * PAUSE)
    before = process.cpu_times()
    time.sleep(QUIET)
    after = process.cpu_times()
    ended.set()
    return (after.user + after.system - before.user - before.system) / QUIET


def follow(port: int, path: str, ended: threading.Event) -> None:
    """One browser: it asks every few seconds whether the page has changed, as static/live.js does."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
        etag = ""
        while not ended.wait(PAUSE):
            connection.request("GET", path, headers={"Accept-Encoding": "gzip", "If-None-Match": etag})
            answer = connection.getresponse()
            answer.read()
            etag = answer.headers["etag"]


def optunas(storage: str, port: int) -> dict:
    """The row of optuna-dashboard."""
    code = f"from optuna_dashboard import run_server; run_server({storage!r}, host='127.0.0.1', port={port})"
    with serving(["-c", code], port) as (process, ready):
        first, size = get(port, "/api/studies/1?after=0")
        again, _ = get(port, "/api/studies/1?after=0")
        memory = process.memory_info().rss / 2**20
    row = {"server": "optuna-dashboard", "ready s": ready, "first page s": first, "again s": again, "MB": size / 1e6}
    row |= {"complete s": first}
    return row | {"other page s": "in the browser", "zoom s": "in the browser", "MiB": round(memory), "idle CPU %": ""}


def copy_to_optuna(ours_: str, theirs: str) -> None:
    """Write the trials of our study into a database of Optuna, directly into its tables."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    optuna.create_study(storage=theirs, study_name=STUDY, directions=["minimize", "minimize"])
    source, target = (sqlite3.connect(each.removeprefix("sqlite:///")) for each in (ours_, theirs))
    with source, target:
        rows = source.execute(
            "SELECT t.id, t.number, t.choices, b.value, f.value FROM trial t JOIN unit u ON u.trial_id = t.id AND "
            "u.rung = t.rung JOIN objective_value b ON b.unit_id = u.id AND b.name = 'bits_per_byte' "
            "JOIN objective_value f ON f.unit_id = u.id AND f.name = 'flops'"
        )
        for id_, number, choices, bits, flops in rows:
            now = "2026-01-01 00:00:00.000000"
            target.execute(
                "INSERT INTO trials (trial_id, number, study_id, state, datetime_start, datetime_complete) "
                "VALUES (?, ?, 1, 'COMPLETE', ?, ?)",
                (id_, number, now, now),
            )
            target.executemany(
                "INSERT INTO trial_values (trial_id, objective, value, value_type) VALUES (?, ?, ?, 'FINITE')",
                [(id_, 0, bits), (id_, 1, flops)],
            )
            target.executemany(
                "INSERT INTO trial_params (trial_id, param_name, param_value, distribution_json) VALUES (?, ?, ?, ?)",
                [(id_, name, 0.0, _distribution(value)) for name, value in json.loads(choices).items()],
            )


def _distribution(value: object) -> str:
    return json.dumps({"name": "CategoricalDistribution", "attributes": {"choices": [value]}})


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return made.getsockname()[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--storage", help="a SQLite file or its URL with such a study; default: make one")
    parser.add_argument("--requests", action="store_true", help="only measure each kind of request to our server")
    parser.add_argument("--browsers", type=int, default=50, help="pages that are open at once")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    notes = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path((arguments.storage or f"{folder}/study.db").removeprefix("sqlite:///")).absolute()
        storage = f"sqlite:///{file}"
        if arguments.storage and not file.is_file():
            parser.error(f"--storage: there is no file {file}")
        if not arguments.storage:
            from benchmarks.support.studies import fill

            fill(storage, STUDY, arguments.trials, metrics=1)
        if arguments.requests:
            rows = list(requests(storage, free_port()))
            report(f"dashboard, requests, {arguments.trials:,} trials", rows, as_json=arguments.json)
            return
        rows = [ours(storage, free_port(), arguments.browsers)]
        if find_spec("optuna_dashboard"):
            theirs = f"sqlite:///{Path(folder) / 'optuna.db'}"
            copy_to_optuna(storage, theirs)
            rows.append(optunas(theirs, free_port()))
        else:
            notes.append("optuna-dashboard is not installed.")
    title = f"dashboard, {arguments.trials:,} trials, {arguments.browsers} open pages"
    report(title, rows, as_json=arguments.json, notes=notes)


if __name__ == "__main__":
    main()
