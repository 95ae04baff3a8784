"""Measures all phases of an architecture on a device: read a prompt, generate one token, take a training step.

Inputs and weights are random, and there is a warm-up (`nas.latency.measured`). Nothing is stored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from kernels.dispatch.device import resolve
from nas import location
from nas.latency import measured, runs
from nas.latency.measured import PhaseLatency
from nas.latency.runs import Setting
from nas.latency.table import Table
from searchspace.model.architecture import Architecture
from searchspace.model.build import as_architecture


def profile(
    architecture: Architecture | str | Path,
    device: str = "cpu",
    *,
    length: int = 256,
    batch: int = 1,
    phases: Sequence[str] | None = None,
    threads: int | None = None,
    warmup: int = 2,
    repeats: int = 20,
    budget_seconds: float | None = 30.0,
    quiet: float | None = None,
    new_tokens: int = runs.NEW_TOKENS,
    depth: int | None = None,
    extras: bool = False,
) -> list[PhaseLatency]:
    """Measure `architecture` on `device` ("cpu", "cuda", "cuda:1") in float32, with `batch` sequences of `length`.

    phases: some of "prefill", "decode", "train", "first_token" and "generate"; by default those of the first three that
    the model has (an encoder has no decode phase, and neither has a model with a block that cannot stream). new_tokens:
    of "generate". depth: the steps of halting blocks, at most those that each has; by default those of untrained
    blocks. extras: measure energy, and memory on a CPU, too. threads: of torch on a CPU; by default its own.
    budget_seconds: for all phases together; each is timed at least once. quiet: see `measured.latency`. Raises
    ValueError for a phase that the model does not have, and for a device that this machine does not have.
    """
    resolve(device)
    model = as_architecture(architecture).configured
    threads = torch.get_num_threads() if threads is None else threads
    at = partial(Setting, device=device, batch=batch, length=length, depth=depth)
    settings = [at(phase=phase, threads=threads, new_tokens=new_tokens) for phase in runs.chosen(phases, model)]
    began, found = time.monotonic(), []
    for number, setting in enumerate(settings):
        spent = time.monotonic() - began
        share = None if budget_seconds is None else max(0.0, budget_seconds - spent) / (len(settings) - number)
        each = measured.latency(
            model, setting, warmup=warmup, repeats=repeats, budget_seconds=share, quiet=quiet, extras=extras
        )
        found.append(each)
    return found


@dataclass(frozen=True)
class Recorded:
    """The latencies that a study holds for a trial. quiet: of the gauge on this device. evidence: by objective."""

    quiet: float | None = None
    evidence: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    device: str = ""

    def of(self, found: PhaseLatency, setting: Setting) -> dict[str, Any] | None:
        """The record in the same setting, and whether its interval holds the new measurement; None without a record."""
        here = {"phase": found.phase, "length": setting.length, "batch": setting.batch, "threads": setting.threads}
        here |= {} if setting.depth is None else {"depth": setting.depth}
        here |= {"new_tokens": setting.new_tokens} if found.phase == "generate" else {}
        for name, each in self.evidence.items():
            if each["device"]["key"] == self.device and here.items() <= each.items():
                inside = each["low"] <= found.milliseconds <= each["high"]
                says = (
                    f"{name} was recorded as {each['milliseconds']:.4g} ms, {each['low']:.4g} to {each['high']:.4g} "
                    f"({each['kind']}), which {'holds' if inside else 'does not hold'} the "
                    f"{found.milliseconds:.4g} ms measured now"
                )
                recorded = {key: each[key] for key in ("milliseconds", "low", "high", "kind")}
                return {**recorded, "holds": inside, "says": says}
        return None


def recorded(reference: str, storage: str | None, device: str, threads: int | None) -> Recorded:
    """The records of the trial that `reference` names; empty if it names none."""
    trial = location.trial_reference(reference)
    if trial is None:
        return Recorded()
    store, study = location.open_existing(trial[0], storage)
    with store:
        table = Table(store, device, torch.get_num_threads() if threads is None else threads)
        return Recorded(table.remembered, store.trial(study.id, trial[1]).evidence or {}, table.device.key)


def calls(architecture: Architecture, device: torch.device, batch: int, length: int) -> Iterator[Callable[[], object]]:
    """A prepared call for every phase that the architecture has. Make each before asking for the next."""
    job = runs.job(architecture.configured, device, batch, length)
    for phase in runs.chosen(None, architecture.configured):
        run = runs.RUNS[phase](job)
        run.prepare()
        yield run.call
