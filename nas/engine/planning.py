"""Plans a search: the space, the baselines, the cost of a trial, the time. It trains a few steps and no more."""

from __future__ import annotations

import math
import random
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from nas import location, metrics
from nas.config.parts import parts
from nas.config.schema import SearchConfig
from nas.engine import launch
from nas.engine.forecast import Forecast, Rates, affordable, forecast
from nas.engine.resolve import HELD_OUT, Resolved, resolve
from nas.errors import NasError, UsageError
from nas.report.data import data_lines
from nas.report.spending import LABELS, amount
from nas.report.tables import duration, short, size
from nas.store import open_reader
from nas.tasks.contract import Task
from nas.training.unit import device_here
from nas.upkeep.disk import existing, free_bytes
from nas.upkeep.places import check_storage, checkpoint_folder
from nas.upkeep.policy import Keep, most_kept
from nas.work import PASSES, SHARE, Outcome, Work, evaluated
from searchspace.model.architecture import Architecture
from searchspace.model.build import cost
from searchspace.model.halting import UNTRAINED, halting_note
from searchspace.wording import plural

SAMPLES = 25  # feasible points whose costs are computed
DRAWN = 200  # points among which the infeasible ones are counted
TIMED_STEPS = 5
ROW_BYTES = 6000  # of a unit in the database: 4 to 6 KB with 25 choices and 10 to 20 metrics (benchmarks.scale)
HALTING = f"halting blocks count at {UNTRAINED}, and later at the depth that each trial measures"


@dataclass(frozen=True)
class Disk:
    """What a search writes, in bytes. checkpoints: how many there are at once, at most; 0 if none is kept."""

    checkpoint: int  # the mean of the samples
    checkpoints: int
    database: int
    free: int | None  # at the checkpoints; None at a URL
    keep: Keep

    def __str__(self) -> str:
        database = f"{size(self.database)} of the database"
        if not self.checkpoints:
            return f"about {database}; no checkpoints"
        free = "" if self.free is None else f"; {size(self.free)} are free"
        kept = f"{plural(self.checkpoints, 'checkpoint')} of {size(self.checkpoint)} (keep: {self.keep})"
        return f"about {size(self.checkpoint * self.checkpoints)} for at most {kept}, {database}{free}"


@dataclass(frozen=True)
class Plan:
    """A search before it runs. The times are estimated from a few steps of the median sample on this machine."""

    study: str
    found: str  # what the study database already holds
    storage: str
    space: str
    points: int | None  # None: infinitely many
    infeasible: float  # share of random points that break a constraint or do not build
    task: str
    data: Mapping[str, Any]  # what the task tells of its data, such as their documents and overlap
    objectives: tuple[str, ...]
    strategy: str
    baselines: tuple[str, ...]
    parameters: tuple[int, int, int]  # lowest, median, highest of the samples
    flops: tuple[int, int, int]  # for one sequence
    warnings: tuple[str, ...]  # samples that cannot be trained, and why
    halting: str  # at which depth FLOPs of halting blocks are counted; "" if no sample has them
    forecast: Forecast
    disk: Disk
    milliseconds_a_step: float
    seconds_a_unit: float  # to begin and to end, without the steps and the evaluation
    evaluation: str  # on how much of the held-out data units are evaluated
    search_seconds: float  # elapsed time on all workers, within the limit
    finals_seconds: float
    limit_minutes: float | None
    budget: dict[str, float]  # its limits, by name
    spent_first: str  # the limit that ends the search, such as trials or tokens

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**vars(self), "forecast": self.forecast.to_dict(), "disk": vars(self.disk)}

    def as_text(self) -> str:
        """One line for each subject."""
        lines = [
            ("study", f"{self.study}, {self.found}"),
            ("storage", self.storage),
            ("space", f"{self.space}; {self.infeasible:.1%} of random ones break a constraint"),
            ("task", self.task),
            *data_lines(self.data),
            ("objectives", ", ".join(self.objectives)),
            ("strategy", self.strategy),
            *(("baseline", each) for each in self.baselines),
            ("parameters", _range(self.parameters)),
            ("flops", f"{_range(self.flops)} a sequence{self.halting and f'; {self.halting}'}"),
            *([("budget", self._budget())] if set(self.budget) - {"trials"} else []),
            ("trials", self._trials()),
            ("finals", self._finals()),
            (
                "a step",
                f"{self.milliseconds_a_step:.0f} ms, and {self.seconds_a_unit:.1f} s a unit to begin and to end",
            ),
            ("evaluation", self.evaluation),
            ("time", self._time()),
            ("disk", str(self.disk)),
            *(("warning", each) for each in self.warnings),
        ]
        if not self.forecast.final_units:
            lines = [line for line in lines if line[0] != "finals"]
        return "\n".join(f"{name:<12}{text}" for name, text in lines)

    def _finals(self) -> str:
        return ", ".join(
            f"{plural(each.units, 'unit')} of {plural(each.steps, 'step')}" for each in self.forecast.finals
        )

    def _trials(self) -> str:
        levels = list(zip(self.forecast.units, self.forecast.rungs, self.forecast.starts))
        first = [(units, steps) for units, steps, start in levels if not start]
        about = "" if self.spent_first == "trials" else "about "
        trials = f"{about}{sum(units for units, _ in first)}"
        if len(first) == 1:
            trials += f", of {plural(first[0][1], 'step')}"
        else:
            trials += ": " + ", ".join(f"{units} of {plural(steps, 'step')}" for units, steps in first)
        more = [(units, steps) for units, steps, start in levels if start]
        if more and not any(units for units, _ in more):
            return trials + "; none is expected to continue"
        continuing = ", ".join(f"{units or 'none'} continue to {steps}" for units, steps in more)
        return trials + (f"; about {continuing} steps in all" if continuing else "")

    def _budget(self) -> str:
        """50 trials, 5M tokens; tokens are spent first."""
        limits = ", ".join(amount(name, limit) for name, limit in self.budget.items())
        return limits + (f"; {LABELS[self.spent_first]} are spent first" if len(self.budget) > 1 else "")

    def _time(self) -> str:
        workers = self.forecast.workers
        on = (
            "on one worker (the cluster decides how many there will be)"
            if workers is None
            else plural(workers, "worker")
        )
        limit = f", cut off at {self.limit_minutes:g} minutes a worker" if self.limit_minutes else ""
        finals = f", then the finals {duration(self.finals_seconds)}" if self.forecast.final_units else ""
        return f"search about {duration(self.search_seconds)}{limit}{finals}; {on}"


def plan(config: SearchConfig) -> Plan:
    """Check everything that a search checks, and estimate its cost.

    A sample that cannot be trained is a warning. Raises NasError for whatever `nas search` rejects, and if none of
    three samples can be trained.
    """
    resolved, known = found(config)
    task, config = config.task.written(), resolved.config
    built = parts(config)
    space, shape = built.space, built.shape
    generator = random.Random(config.seed)
    refused = sum(not space.feasible(space.sample(generator, feasible=False)) for _ in range(DRAWN)) / DRAWN
    samples = [space.sample(generator).architecture for _ in range(SAMPLES)]
    costs = sorted(((cost(each, shape), each) for each in samples), key=lambda pair: pair[0].training_flops)
    typical = [costs[place][1] for place in (len(costs) // 2, 0, -1)]  # of median, lowest and highest cost
    here, warnings = _on_this_machine(config)
    rows = built.task.shape.rows
    held_out = {split: built.prepared_task.held_out_positions(split) for split in HELD_OUT}
    with tempfile.TemporaryDirectory() as folder:
        trained, step, unit, failed = _timed(here, typical, folder, held_out["validation"])
        written = max((each.stat().st_size for each in Path(folder).iterdir()), default=0)
    mean = statistics.fmean(each.parameters for each, _ in costs) / max(1, cost(trained, shape).parameters)
    rates = Rates(
        tokens=config.step_tokens,
        flops=statistics.median(each.training_flops for each, _ in costs) * built.task.shape.batch,
        device_seconds=step,
        unit_seconds=unit,
    )
    bought = affordable(config, rates)
    assert bought is not None  # a budget has a limit, and all rates are known
    ahead = forecast(config, bought[0])
    warnings += failed
    search = sum(
        count * (steps * step + unit + _evaluation(reached, rows, held_out["validation"]) * step)
        for count, steps, reached in zip(ahead.units, ahead.steps, ahead.rungs)
    )
    whole = sum(held_out.values()) / (PASSES * rows)  # of all data, in training steps
    finals = sum(each.units * ((each.steps + whole) * step + unit) for each in ahead.finals)
    workers, limit = ahead.workers or 1, (config.budget.minutes or math.inf) * 60
    points = space.size()
    disk = _disk(config, ahead, round(written * mean))  # a checkpoint grows with the parameters
    if disk.free is not None and disk.checkpoint * disk.checkpoints + disk.database > disk.free:
        warnings += (f"the disk has {size(disk.free)} free, which is less than the search may write",)
    return Plan(
        study=config.study,
        found=known,
        storage=location.shown(config.storage),
        space=str(points),
        points=points.points,
        infeasible=refused,
        task=yaml.safe_dump(task, default_flow_style=True, width=1000, allow_unicode=True)
        .removesuffix("...\n")
        .strip(),
        data=config.data_facts or {},
        objectives=tuple(f"{each.name} ({each.direction})" for each in built.objectives),
        strategy=config.strategy.name,
        baselines=tuple(
            f"{each.short}, {each.root.name}, {short(cost(each, shape).parameters)} parameters"
            for each in built.baselines
        ),
        parameters=_spread([each.parameters for each, _ in costs]),
        flops=_spread([each.expected_flops for each, _ in costs]),
        warnings=warnings,
        halting=HALTING if any(halting_note(each, shape) for each in samples) else "",
        forecast=ahead,
        disk=disk,
        milliseconds_a_step=step * 1000,
        seconds_a_unit=unit,
        evaluation=_told(held_out["validation"], built.prepared_task, bool(ahead.finals)),
        search_seconds=min(search / workers, limit),
        finals_seconds=finals / workers,
        limit_minutes=config.budget.minutes,
        budget=config.budget.model_dump(exclude={"minutes"}, exclude_none=True),
        spent_first=bought[1],
    )


def _evaluation(steps: int, rows: int, held_out: int) -> float:
    """What the evaluation of a unit of the search costs, in training steps. held_out: positions there are."""
    return min(held_out, evaluated(steps, rows)) / (PASSES * rows)


def _told(held_out: int, task: Task, finals: bool) -> str:
    limits = type(task).some_held_out is not Task.some_held_out
    whole = f"all {held_out:,} held-out positions"
    told = f"at most {SHARE:.0%} of a unit's training, on a part of the held-out data" if limits else whole
    return f"{told}; in the finals on {whole}" if finals and limits else told


def _disk(config: SearchConfig, ahead: Forecast, written: int) -> Disk:
    kept = checkpoint_folder(config.checkpoints)
    units, trials = list(ahead.units), sum(count for count, start in zip(ahead.units, ahead.starts) if not start)
    most = most_kept(config.keep, units, trials, ahead.final_units) if config.checkpoints else 0
    free = None if kept is None else free_bytes(existing(kept))
    return Disk(written, most, (sum(units) + ahead.final_units) * ROW_BYTES, free, config.keep)


def _on_this_machine(config: SearchConfig) -> tuple[SearchConfig, tuple[str, ...]]:
    """`config` as its units are timed here: on the CPU, with a warning, if only the workers have the device."""
    try:
        device_here(config.device)
    except UsageError as error:
        return config.model_copy(update={"device": "cpu"}), (f"the times are those of a CPU. {error}",)
    return config, ()


def _timed(
    config: SearchConfig, samples: Sequence[Architecture], folder: str, held_out: int
) -> tuple[Architecture, float, float, tuple[str, ...]]:
    """The first sample that can be trained, its seconds of a training step and of the rest of a unit without its
    evaluation; why the others failed. Its checkpoint is written to `folder`. held_out: as in `_evaluation`.

    Raises NasError if none can be trained: most trials of the search would fail too.
    """
    failed: list[str] = []
    for each in dict.fromkeys(samples):
        outcome = _trained(config, each.text(), folder)
        if outcome.failure is None:
            rows = parts(config).task.shape.rows
            step = rows / outcome.metrics[metrics.of_run("tokens_per_second")]
            steps = TIMED_STEPS + _evaluation(TIMED_STEPS, rows, held_out)
            return each, step, max(0.0, outcome.seconds - steps * step), tuple(failed)
        reason = f"{outcome.failure.kind}: {outcome.failure.message}"
        failed.append(f"sample {each.short} of the space cannot be trained, so a trial of it would fail ({reason})")
    raise NasError(f"No sample of the space could be trained. The last one: {reason}")


def _trained(config: SearchConfig, architecture: str, folder: str) -> Outcome:
    """A unit of a few steps, after a warm-up. It runs in a child if there is code of the user, which may crash."""

    def unit(steps: int) -> Work:
        return Work(
            study=config.study,
            trial=0,
            rung=0,
            architecture=architecture,
            task=parts(config).spec,
            recipe=config.recipe,
            steps=steps,
            horizon=steps + 1,
            seed=config.seed,
            checkpoint=folder,
            threads=parts(config).threads,
            device=config.device,
            cache=str(location.CACHE),
            task_source=config.task_source,
            blocks=config.blocks,
            evaluated=evaluated(steps, parts(config).task.shape.rows),
        )

    units = unit(1), unit(TIMED_STEPS)
    if config.task_source is None and not config.blocks:
        return _run(*units)
    from nas.child import Child, Died
    from nas.runners._process import why_ended

    child = Child()
    try:
        return child.call(_run, *units)
    except Died as error:
        return Outcome(trial=0, rung=0, seconds=0.0, failure=why_ended(error.death))
    finally:
        child.kill()


def _run(first: Work, second: Work) -> Outcome:
    from nas.training.unit import run, warm_up

    outcome = warm_up(first)
    return outcome if outcome.failure is not None else run(second)


def found(config: SearchConfig) -> tuple[Resolved, str]:
    """What a search of `config` has before it, and what the database has of this study already, as text.

    A database that does not exist is not created. Raises what `resolve` raises, and StoreError if the database could
    not be made.
    """
    if launch.begins_file(check_storage(config.storage)):
        return resolve(config), "new"
    with open_reader(config.storage) as store:
        made = resolve(config, store)
        if made.study is None:
            return made, "new"
        tried = sum(count.trials for count in store.counts(made.study.id) if count.purpose == "search")
        counted = f"{tried} of {config.budget.trials} trials" if config.budget.trials else plural(tried, "trial")
        return made, f"started {made.study.created_at:%Y-%m-%d}: it has {counted}"


def _spread(values: list[int]) -> tuple[int, int, int]:
    return min(values), int(statistics.median(values)), max(values)


def _range(spread: tuple[int, int, int]) -> str:
    low, middle, high = (short(value) for value in spread)
    return f"{low} to {high}, median {middle}"
