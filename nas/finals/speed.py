"""How many positions per second each entrant trains, measured in turns, so that a load slows all of them alike."""

from __future__ import annotations

from collections.abc import Sequence

from kernels.dispatch.device import resolve
from nas.config.parts import parts
from nas.config.schema import SearchConfig
from nas.latency import runs, timing
from nas.latency.runs import Setting
from searchspace.model.architecture import Architecture
from tuner.measure import garbage
from tuner.measure.measure import measure

TURNS = 7
SECONDS = 30.0  # for all entrants together; each has at least one turn


def in_turns(config: SearchConfig, architectures: Sequence[Architecture]) -> list[float]:
    """Positions per second of a training step with the task's batch and length, on the search's device, in float32."""
    shape = parts(config).task.shape
    setting = Setting(
        phase="train",
        device=config.device,
        batch=shape.batch,
        length=max(shape.length, shape.memory),
        threads=parts(config).threads,
    )
    where = resolve(config.device)
    with runs.on_threads(setting.threads), runs.seeded(where), garbage.little_garbage():
        made = {number: runs.run(each.configured, setting, where)[1] for number, each in enumerate(architectures)}
        found = measure(
            {str(number): run.call for number, run in made.items()},
            prepare={str(number): run.prepare for number, run in made.items()},
            warmup=1,
            repeats=TURNS,
            budget_seconds=SECONDS,
            clock=timing.clock(setting),
        )
    return [setting.batch * setting.length * 1000 / found[str(number)].median for number in made]
