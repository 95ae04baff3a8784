"""Milliseconds of an architecture on a device: a prompt, a decode step or a training step, with tuned kernels.

It is measured, or predicted from pieces that were measured before (`nas.latency`). Before a search uses predictions, it
draws random architectures from its space, measures them as a whole and predicts each from the others. If the error is
above `bound`, or if a model is not a sum of pieces, it measures, and the evidence says why. An architecture that does
not run in this setting has no value. Values, pieces and the cross-check are stored in the study database, so a resumed
search has them.

Without `on` the process that runs the search measures, between the units of an inline runner. The device is one of that
machine, and all values of an objective are of one device. The load of Ray's workers on the same machine is measured and
reported as `load`.

Throughput, energy and peak memory are measured in the same way, with the same options.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

import torch

from kernels.dispatch.device import resolve
from nas.errors import NasError, UsageError
from nas.latency import evidence, resources
from nas.latency.calibration import CrossCheck
from nas.latency.measured import CannotRun, PhaseLatency
from nas.latency.pieces import CannotCompose
from nas.latency.predicted import Predictor
from nas.latency.runs import NEW_TOKENS, WHOLE, Phase, Setting, impossible
from nas.latency.table import Table, code
from nas.objectives.contract import Direction, NoValue, Objective, Search, name_problem
from nas.objectives.registry import objective
from nas.options import Field, Fraction, PlainValidator, Positive, Threads
from searchspace.cost import Shape
from searchspace.model.architecture import Architecture
from searchspace.space.space import Space

Method = Literal["measured", "predicted", "auto"]
SMALLEST = 1e-4  # of an amount of a resource: Ray counts in ten-thousandths
RESERVED = ("memory", "object_store_memory", "bundle")  # Ray refuses them, and names that are not ASCII


def _place(on: Any) -> dict[str, Any]:
    """The same. Raises ValueError, for a sentence about the option, unless it names a machine or resources."""
    known = isinstance(on, Mapping) and len(on) == 1
    machine, some = (on.get("machine"), on.get("resources")) if known else (None, None)
    if isinstance(some, Mapping) and some:
        for name, amount in some.items():
            _check_amount(name, amount)
    elif not isinstance(machine, str) or not machine.strip():
        raise ValueError("must be {resources: {NAME: AMOUNT}} or {machine: NAME}")
    return dict(on)


def _check_amount(name: Any, amount: Any) -> None:
    if not isinstance(name, str) or name in RESERVED or not name.isascii():
        raise ValueError(f"must name CPU, GPU or custom resources of Ray, and {name!r} is none of them")
    if isinstance(amount, bool) or not isinstance(amount, int | float) or not SMALLEST <= amount < math.inf:
        raise ValueError(f"must have a number of at least {SMALLEST:g} as the amount of {name}")
    if name == "GPU" and amount > 1 and amount % 1:
        raise ValueError("must have a whole number as the amount of GPU if it is above 1")


# Where it is measured, if not by the search: {resources: {quiet_gpu: 1, GPU: 1}} or {machine: laptop}.
Place = Annotated[dict[str, Any], PlainValidator(_place)]


@objective("latency")
class Latency(Objective):
    """Its name in results is `prefill_ms`, `decode_ms`, and so on.

    phase: prefill, decode (one token after `length` tokens), train, first_token (read a prompt and choose a token) or
    generate (choose `new_tokens`, by default 32); the last two are always measured. device: "cpu", "cuda", "cuda:N".
    batch, length: of the input; the default length is the task's. threads: of torch on a CPU; the default is torch's
    setting. method: measured, predicted (whatever the cross-check says), or auto. check: the number of random
    architectures in the cross-check. bound: the largest error in the cross-check, a fraction, with which `auto`
    predicts. depth: the steps of halting blocks; by default those of untrained ones. on: {resources: {NAME: AMOUNT}}
    measures on a worker of Ray that holds these resources, by a probe of its own before the trial's training; {machine:
    NAME} leaves it to `nas latency STUDY --machine NAME`, and the search does not wait for it.
    """

    settled = True
    unit: ClassVar[str] = evidence.UNITS["latency"]
    extras: ClassVar[bool] = False  # whether memory and energy are measured too

    def __init__(
        self,
        shape: Shape,
        phase: Phase = "prefill",
        device: str = "cpu",
        batch: Positive = 1,
        length: Positive | None = None,
        threads: Threads | None = None,
        method: Method = "auto",
        check: Annotated[Positive, Field(ge=3, le=10_000)] = 12,
        bound: Annotated[Fraction, Field(gt=0, lt=1)] = 0.05,
        depth: Positive | None = None,
        new_tokens: Positive | None = None,
        on: Place | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(shape)
        self.setting = Setting(
            phase=phase,
            device=device,
            batch=batch,
            length=shape.length if length is None else length,
            threads=torch.get_num_threads() if threads is None else threads,
            depth=depth,
            new_tokens=NEW_TOKENS if new_tokens is None else new_tokens,
        )
        if new_tokens is not None and phase != "generate":
            self.refused = f"new_tokens has an effect in the phase generate only, and this is {phase}"
        if name is not None and (problem := name_problem(name)):
            self.refused = problem
        self.method: Method = "measured" if phase in WHOLE or self.extras else method
        self.name, self.count, self.bound = name or f"{phase}_{self.unit}", check, bound
        if on is not None:
            self.placed = True
            if "machine" in on:
                self.stage, self.machine = "later", str(on["machine"])
            else:
                self.stage, self.method = "probe", "measured"
        # torch's own number of threads may differ between processes; one that was asked for may not
        asked = ["new_tokens"] * (phase == "generate") + ["threads"] * (threads is not None)
        self._compared = ("phase", "length", "batch", "depth", *asked)
        self._search = Search()
        self._device: Mapping[str, Any] | None = None  # of the first value, if workers measure
        self._found: dict[str, PhaseLatency] = {}
        self._reasons: dict[str, str] = {}  # why an architecture was measured, although others are predicted
        self._predictor: Predictor | None = None
        self._check: CrossCheck | None = None

    def begin(self, search: Search) -> None:
        """Raises UsageError if the device is not here, or the study has latencies of another or in another setting."""
        self._search, self._predictor, self._check = search, None, None
        self._found.clear()
        self._reasons.clear()
        first = next(iter(search.evidence(self.name)), None)
        if self.stage == "cost":  # else the device is that of a worker, or of another machine
            self._check_device()
            if first is not None:
                self.check_like(first)
        self._device = None if first is None else first["device"]
        if first is not None and self.stage != "later" and first["code"] != code():
            self._search.say(
                f"{self.name}: earlier values of this study are of other code (then {first['code']}, now {code()}), so "
                "later ones may differ. `nas rescore` finds all of them again under another name."
            )

    def check_like(self, evidence: Mapping[str, Any]) -> None:
        """Raises UsageError if it is of another device or in another setting."""
        here, there = self.predictor.table.device, evidence["device"]
        if there["key"] != here.key:
            raise UsageError(
                f"objective {self.name}: the study's latencies are of {there['name']} ({there['key']}), but this is "
                f"{here.name} ({here.key}){self._differs(there['key'])}: go on there, or give this one a name of its "
                "own (name: ...)."
            )
        setting = {"unit": self.unit, **{name: getattr(self.setting, name) for name in self._compared}}
        known = {name: evidence.get(name) for name in setting}
        other = [f"{name} {known[name]}, not {now}" for name, now in setting.items() if known[name] != now]
        if other:
            raise UsageError(
                f"objective {self.name}: the study's latencies are of {', '.join(other)}: give this one a name of "
                "its own (name: ...)."
            )

    def _differs(self, key: str) -> str:
        """How this device differs from one that has measurements, such as in its version of torch; empty if unknown."""
        there = {} if self._search.store is None else self._search.store.devices().get(key, {})
        here = self.predictor.table.device.to_dict()
        same = {"key", "name", "memory_bytes"}  # said already, or not part of the key
        other = [name for name in there if name not in same and there[name] != here.get(name)]
        listed = ", ".join(f"{name} {here.get(name)!r}, there {there[name]!r}" for name in other)
        return f", with {listed}" if listed else ""

    def _check_device(self) -> None:
        """Raises UsageError if the device is not on this machine, or cannot tell the value."""
        _ = self.predictor

    @property
    def predictor(self) -> Predictor:
        """The predictor, with the table of the study database, or one in memory if there is no search.

        Raises UsageError if the device is not on this machine.
        """
        if self._predictor is None:
            try:
                table = Table(self._search.store, self.setting.device, self.setting.threads)
            except ValueError as error:  # the device is not here
                raise UsageError(f"objective {self.name}: {error}") from None
            self._predictor = Predictor(table, self.setting, self.extras)
        return self._predictor

    def evaluate(self, architecture: Architecture, metrics: Mapping[str, float] | None = None) -> float:
        """Milliseconds, from `metrics` if a worker measures. Raises NoValue if the model does not run in this setting.

        Raises UsageError if a worker or a machine should have measured it and did not.
        """
        if self.stage == "cost":
            return self._value(self.latency(architecture))
        if metrics is None or self.name not in metrics:
            raise UsageError(f"objective {self.name}: it is measured elsewhere, but there is no value from there.")
        return metrics[self.name]

    def on_worker(self, architecture: Architecture) -> dict[str, float]:
        """The value, its interval in milliseconds and the load, if a worker is to measure; else nothing.

        Raises ValueError if the model does not run in this setting, or the worker does not have the device.
        """
        if self.stage != "probe":
            return {}
        try:
            found = self.latency(architecture)
        except NasError as error:  # of this architecture or worker: the search goes on
            raise ValueError(str(error)) from error
        more = {"low_ms": found.low, "high_ms": found.high, "load": found.load or 1.0}
        return {self.name: self._value(found), **{f"{self.name}/{name}": value for name, value in more.items()}}

    def unlike(self, evidence: Mapping[str, Any]) -> str:
        """The values of a study are of one device: that of the first."""
        here = evidence["device"]
        first = self._device = self._device or here
        if here["key"] == first["key"]:
            return ""
        return (
            f"objective {self.name}: a worker measured it on {here['name']} ({here['key']}), but the study's values "
            f"are of {first['name']} ({first['key']}): offer the resource on one kind of device only, and measure on "
            "others with `on: {machine: NAME}`."
        )

    def _value(self, found: PhaseLatency) -> float:
        return found.milliseconds

    def evidence(self, architecture: Architecture) -> dict[str, Any]:
        """The interval, the method, the cross-check, the device, and which tuned configurations were used."""
        found, setting, device = self.latency(architecture), self.setting, self.predictor.table.device
        known = {**found.to_dict(), "unit": self.unit, "code": code()}
        known |= {name: getattr(setting, name) for name in ("batch", "length", "threads")}
        known["device"] = {"key": device.key, "name": device.name, "asked": setting.device}
        check = self._check
        known["cross_check"] = {"error": check.error, "of": len(check.ratios)} if check and check.is_enough else None
        if found.peak_bytes is not None:
            known["declared_bytes"] = resources.declared(architecture.configured, setting)
        if setting.depth is not None:
            known["depth"] = setting.depth
        if setting.phase == "generate":
            known["new_tokens"] = setting.new_tokens
        if why := self._reasons.get(architecture.hash):
            known["not_predicted"] = why
        return known

    def latency(self, architecture: Architecture) -> PhaseLatency:
        """The latency, measured or predicted once in this process. Raises NoValue if the model does not run like
        this.
        """
        if architecture.hash not in self._found:
            try:
                self._found[architecture.hash] = self._find(architecture)
            except CannotRun as error:
                raise NoValue(f"objective {self.name}: {error}") from error
        return self._found[architecture.hash]

    def _find(self, architecture: Architecture) -> PhaseLatency:
        if reason := impossible(architecture.configured, self.setting):
            raise CannotRun(reason)
        why = f"the phase {self.setting.phase} is measured as a whole" if self.setting.phase in WHOLE else ""
        if self.method != "measured":
            try:
                return self.predictor.predicted(architecture, self._checked())
            except CannotCompose as error:
                why = str(error)
        self._reasons[architecture.hash] = why
        return self.predictor.measured(architecture)

    def _checked(self) -> CrossCheck:
        """The cross-check, made once in a process. Raises CannotCompose if it does not allow predictions."""
        if self._check is None and self._search.space is not None:
            self._check = self.predictor.check(self._drawn(self._search.space), self.count)
            self._search.say(self._summary(self._check))
        if self._check is None:
            raise CannotCompose("there is no space whose architectures could check predictions")
        if why := self._why_not(self._check):
            raise CannotCompose(why)
        return self._check

    def _why_not(self, check: CrossCheck) -> str:
        """Why the cross-check does not allow predictions; empty if it does."""
        if not check.is_enough:
            return "too few architectures of the space are sums of pieces"
        if self.method == "auto" and check.error > self.bound:
            return f"predictions were {check.error:.1%} off in the cross-check, and the bound is {self.bound:.1%}"
        return ""

    def _drawn(self, space: Space) -> Iterator[Architecture]:
        """Different random architectures of the space. They are the same in every process."""
        seen = set()
        for number in range(4 * self.count):
            drawn = space.sample(random.Random(f"latency/{number}")).architecture
            if drawn.hash not in seen:
                seen.add(drawn.hash)
                yield drawn

    def _summary(self, check: CrossCheck) -> str:
        if why := self._why_not(check):
            return f"{self.name}: {why}, so latencies are measured"
        return (
            f"{self.name}: predicted within {check.error:.1%} (median of {len(check.ratios)} random architectures, "
            f"cross-checked; bound {self.bound:.1%}), so latencies are predicted"
        )


@objective("throughput")
class Throughput(Latency):
    """Tokens per second at a batch size. Its name in results is `decode_tokens_per_second`, and so on.

    It has the options of `latency`. Tokens are those that one call reads (prefill, first_token, train) or generates
    (decode, generate), over the batch.
    """

    direction = Direction.MAXIMISE
    unit = evidence.UNITS["throughput"]

    def _value(self, found: PhaseLatency) -> float:
        return 1e3 * self.setting.tokens / found.milliseconds


@objective("energy")
class Energy(Latency):
    """The joules of one call, where the device reports its energy. Its name in results is `decode_joules`, and so on.

    It has the options of `latency`, and is always measured. The counter of a CPU counts everything that runs on the
    package, so nothing else should.
    """

    unit = evidence.UNITS["energy"]
    extras = True

    def _check_device(self) -> None:
        """Raises UsageError if the device is not on this machine, or this process can read no counter of it."""
        super()._check_device()
        if resources.counter(resolve(self.setting.device)) is None:
            raise UsageError(f"objective {self.name}: {resources.why_none(self.setting.device)}")

    def _value(self, found: PhaseLatency) -> float:
        if found.joules is None:
            raise NoValue(f"objective {self.name}: {resources.why_none(self.setting.device)}")
        return found.joules


@objective("peak_memory")
class PeakMemory(Latency):
    """The most bytes that one call needs, with the weights. Its name in results is `train_peak_bytes`, and so on.

    It has the options of `latency`, and is always measured.
    """

    unit = evidence.UNITS["peak_memory"]
    extras = True

    def _value(self, found: PhaseLatency) -> float:
        if found.peak_bytes is None:
            raise NoValue(f"objective {self.name}: the memory of a call cannot be measured on {self.setting.device}.")
        return float(found.peak_bytes)
