"""Large studies: `python -m benchmarks.scale [--trials 100000] [--storage URL] [--json]`.

Fills a database with a study that looks like the result of a search: 25 choices, two objectives, two rungs with
successive halving, 1 % failures, metrics and a curve. Then it times whole commands, each in a new process:
elapsed time, CPU time of the command (without that of a PostgreSQL server) and its peak memory. `resume` rebuilds the
state of a stopped search and makes its next proposal. Without --storage the database is a temporary SQLite file.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.support.report import report

STUDY = "large"
COMMANDS = {  # seconds that each may take, by the number of trials; None: no bar
    "status": ((100_000, 1.0), (1_000_000, 3.0)),
    "best": ((100_000, 1.0), (1_000_000, 3.0)),
    "best --pareto": ((100_000, 1.0), (1_000_000, 3.0)),
    "show": ((100_000, 1.0), (1_000_000, 3.0)),
    "export": ((100_000, 3.0), (1_000_000, 3.0)),
    "resume": ((100_000, 10.0),),
}
MEMORY = 1024  # MiB that the resumed search may take
RESUME = "resume"
OWN = ["-m", "benchmarks.scale"]


def arguments_of(command: str, trials: int, storage: str) -> list[str]:
    """The arguments of Python for a command."""
    if command == RESUME:
        return [*OWN, "--resume", storage]
    named = {"show": [f"{STUDY}:{trials // 20}"], "export": [STUDY, "--best", "--out", "-"]}.get(command, [STUDY])
    return ["-m", "nas", *command.split(), *named, "--storage", storage]


def run(arguments: list[str]) -> tuple[float, float, float]:
    """(seconds, seconds of CPU, peak MiB) of Python with these arguments. Raises RuntimeError if it fails."""
    began = time.perf_counter()
    process = os.posix_spawn(sys.executable, [sys.executable, *arguments], os.environ, file_actions=_SILENT)
    _, status, used = os.wait4(process, 0)
    seconds = time.perf_counter() - began
    if status:
        raise RuntimeError(f"{' '.join(arguments)} failed with {os.waitstatus_to_exitcode(status)}.")
    return seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


# This process stays small, because the peak memory of a child includes that of its parent at the start.
_SILENT = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]


def resume(storage: str) -> None:
    """Rebuild the state of the stopped search, as `nas search` does, and make its next proposal."""
    from benchmarks.support.studies import config_for
    from nas.config.parts import parts
    from nas.engine import launch, session
    from nas.engine.resolve import resolve

    config = config_for(storage, STUDY)
    with launch.open_for(config) as store:
        found = resolve(config, store)
        proposer = session.proposer(parts(found.config), store, launch.enter(store, found))
        proposer.absorb()
        arm = proposer.arms["main"]
        arm.propose(arm.trials, 1)


def measure(trials: int, storage: str, times: int, commands: list[str]) -> list[dict]:
    """One row for each command: the median of the elapsed times, with the CPU time and the memory of that run."""
    rows = []
    for command in commands:
        found = sorted(run(arguments_of(command, trials, storage)) for _ in range(times))
        seconds, cpu, memory = found[len(found) // 2]
        bars = dict(COMMANDS[command])
        bar = f"{bars[trials]:g} s" if trials in bars else ""
        name = f"nas {command}" if command != RESUME else "resume the search"
        bar += f", {MEMORY} MiB" if bar and command == RESUME else ""
        rows.append({"command": name, "s": round(seconds, 2), "CPU s": round(cpu, 2), "MiB": round(memory), "bar": bar})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--storage", help="an empty database; a SQLite file or postgresql://...")
    parser.add_argument("--filled", action="store_true", help="the database already holds such a study")
    parser.add_argument("--metrics", type=int, default=5, help="metrics of a unit, and points of its curve")
    parser.add_argument("--copies", type=int, default=1, help="fill PostgreSQL with copies of the first trials")
    parser.add_argument("--times", type=int, default=3, help="runs of each command")
    parser.add_argument("--commands", default=",".join(COMMANDS))
    parser.add_argument("--resume", metavar="URL", help=argparse.SUPPRESS)
    parser.add_argument("--fill", metavar="URL", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.resume:
        resume(arguments.resume)
        return
    if arguments.fill:
        from benchmarks.support.studies import fill, multiply

        fill(arguments.fill, STUDY, arguments.trials // arguments.copies, metrics=arguments.metrics)
        if arguments.copies > 1:
            multiply(arguments.fill, STUDY, arguments.copies)
        return
    with tempfile.TemporaryDirectory() as folder:
        storage = arguments.storage or f"sqlite:///{Path(folder) / 'study.db'}"
        notes = []
        if not arguments.filled:
            options = ["--trials", str(arguments.trials), "--metrics", str(arguments.metrics)]
            options += ["--copies", str(arguments.copies)]
            notes = [f"filled in {run([*OWN, '--fill', storage, *options])[0]:.0f} s"]
        rows = measure(arguments.trials, storage, arguments.times, arguments.commands.split(","))
    kind = "PostgreSQL" if storage.startswith("postgres") else "SQLite"
    report(f"scale, {kind}, {arguments.trials:,} trials", rows, as_json=arguments.json, notes=notes)


if __name__ == "__main__":
    main()
