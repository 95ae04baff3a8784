"""Whether a search was better than its control arms: the fronts of the arms, by hypervolume at equal training cost.

The cost is the declared training FLOPs of the units that ended; training steps, if the FLOPs of a trial are not known.
Of the arm that trained more, only the first units count, up to the cost of all units of the other arm.
Each trial counts with its values after its longest training within these units. A demoted probe does not count,
because the search ignores it; a trial that waits for a value from a machine is left out. The test is in
`nas.statistics.front_comparison`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from nas.report.probes import probes
from nas.report.tables import short
from nas.store.records import MAIN, SEARCH, UnitKind
from searchspace.wording import plural

if TYPE_CHECKING:
    from nas.store import Reader, Study, Unit

EQUAL = 1.5  # the largest ratio of two costs that are called equal
MOST = 10_000  # units that are read, the first ones of the study
RANDOM = "random"  # the operator of a random proposal, and the strategy
METHOD = "permutation test of trials trained equally long, 95 % interval"
KEPT = "controls"  # the key in the ending of a study
Values = Mapping[str, float]
Later = Mapping[int, Values | None]  # by trial: what machines found later; None if it does not run on one


@dataclass(frozen=True)
class Control:
    """The search against one control arm.

    Pairs have the value of the search first. shares: of the hypervolume of both. low, high: the interval of their
    difference. trials: the number that counts. cost: the total, in `unit` (FLOPs or steps). start: how many of the
    trials of the search are from the random start of its strategy. without: demoted probes, which do not count.
    """

    arm: str
    name: str
    shares: tuple[float, float]
    low: float
    high: float
    trials: tuple[int, int]
    cost: tuple[float, float]
    unit: str
    start: int = 0
    without: tuple[str, ...] = ()

    @classmethod
    def kept(cls, document: Mapping[str, Any]) -> Control:
        """From JSON, which has lists in place of tuples."""
        return cls(**{**document, **{name: tuple(document[name]) for name in ("shares", "trials", "cost", "without")}})

    @property
    def verdict(self) -> str:
        """better, worse or not better: no difference is shown."""
        return "better" if self.low > 0 else "worse" if self.high < 0 else "not better"

    def sentence(self) -> str:
        """The verdict and its figures."""
        search, control = self.shares
        counts = f"{plural(self.trials[0], 'trial')} and {self.trials[1]}"
        return (
            f"The search was {self.verdict} than {self.name}: at {self._equal} cost ({short(self.cost[0])} and "
            f"{short(self.cost[1])} {self.unit}, {counts}) its front has {search:.3f} of the hypervolume of both, that "
            f"of the control {control:.3f}; difference {search - control:+.3f} ({self.low:+.3f} to {self.high:+.3f}; "
            f"{METHOD}).{self._caution()}"
        )

    @property
    def _equal(self) -> str:
        """Units are not divided, so a few of very different cost cannot cost the same."""
        return "equal" if max(self.cost) <= EQUAL * min(self.cost) else "unequal"

    def _caution(self) -> str:
        """Remarks: if the difference is outside the interval, if probes were demoted, and how many trials are random.

        If the control has a small share of the budget, the search is judged by its random start, before it has learned.
        """
        found = ""
        if not self.low <= self.shares[0] - self.shares[1] <= self.high:
            found += " The interval leaves out the part of the difference that more trials alone give."
        if self.without:
            found += f" Demoted probes do not count: {', '.join(self.without)}."
        if self.start:
            count = f"{self.start} of {self.trials[0]}"
            found += f" Of the search's trials that count, {count} are the random start of its strategy."
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "verdict": self.verdict, "method": METHOD, "sentence": self.sentence()}


def controls(store: Reader, study: Study) -> list[Control]:
    """The search against each control arm that has results; empty if there is none.

    The result that was stored at the end of the search is used again, unless there are new results or objectives.
    """
    if not _names(study):
        return []
    read = _results_of_search(store, study)
    kept = (study.ending or {}).get(KEPT)
    if kept is None or kept["of"] != _basis(study, read):
        return _computed(store, study, read)
    return [Control.kept(each) for each in kept["found"]]


def to_keep(store: Reader, study: Study) -> dict[str, Any]:
    """What a study with control arms adds to its ending. Computing it needs NumPy, and a second for 10,000 units."""
    if not _names(study):
        return {}
    read = _results_of_search(store, study)
    found = [asdict(each) for each in _computed(store, study, read)]
    return {KEPT: {"of": _basis(study, read), "found": found}}


def _results_of_search(store: Reader, study: Study) -> list[Unit]:
    return [each for each in store.results_since(study.id, limit=MOST, light=True) if each.purpose == SEARCH]


def _basis(study: Study, read: Sequence[Unit]) -> dict[str, Any]:
    """The data that a comparison depends on. Units never change after they have ended."""
    return {"results": len(read), "objectives": [each["name"] for each in study.objectives]}


def _computed(store: Reader, study: Study, read: Sequence[Unit]) -> list[Control]:
    units, later = [each for each in read if counts(each)], _later(read)
    without = tuple(each.name for each in probes(store, study) if each.demoted)
    signs = {
        each["name"]: -1 if each["direction"].startswith("max") else 1
        for each in study.objectives
        if each["name"] not in without
    }
    start = _start(store, study)
    found = (_compared(arm, name, units, signs, later, start) for arm, name in _names(study).items())
    return [replace(each, without=without) for each in found if each is not None]


def uncompared(study: Study, found: Sequence[Control]) -> list[str]:
    """A sentence for each control arm that is not among `found`, after the search has ended."""
    done = {each.arm for each in found}
    return [
        f"There is no comparison with {name}: this arm or the search has no trial with a result."
        for arm, name in _names(study).items()
        if arm not in done
    ]


def _names(study: Study) -> dict[str, str]:
    """The displayed name of each control arm. If two would be equal, it includes the arm's own name."""
    names = {arm: name_of(written) for arm, written in (study.config.get("arms") or {}).items()}
    often = Counter(names.values())
    return {arm: name if often[name] == 1 else f"{name} ({arm})" for arm, name in names.items()}


def _later(units: Sequence[Unit]) -> Later:
    found: dict[int, Values | None] = {}
    for each in units:
        if each.later:
            known = found.get(each.number, {})
            found[each.number] = None if known is None or each.values is None else {**known, **each.values}
    return found


def _start(store: Reader, study: Study) -> frozenset[int]:
    """The trials of the search that its strategy proposed at random; none for a strategy that always does."""
    if study.config["strategy"]["name"] == RANDOM:
        return frozenset()
    trials = store.trials(study.id, purposes=(SEARCH,), light=True)
    return frozenset(each.number for each in trials if each.arm == MAIN and each.operator == RANDOM)


def counts(unit: Unit) -> bool:
    """Whether a unit is the end of a rung, or a failure, of the search."""
    return unit.purpose == SEARCH and not unit.later and (unit.kind is UnitKind.TRAIN or unit.values is None)


def name_of(arm: Mapping[str, Any]) -> str:
    """The displayed name of a control arm, from the stored search file."""
    if arm.get("architectures"):
        return "the architectures made by hand"
    name = str(arm["strategy"]["name"])
    return {"random": "random search", "parameters": "the largest models"}.get(name, name)


def _compared(
    arm: str, name: str, units: Sequence[Unit], signs: Mapping[str, int], later: Later, start: frozenset[int]
) -> Control | None:
    from nas.statistics import front_comparison  # numpy: only a study with a control needs it

    both = [[each for each in units if each.arm == which] for which in (MAIN, arm)]
    if not all(any(each.values for each in some) for some in both):
        return None
    flops = all(each.step_flops is not None for some in both for each in some)
    costs = [list(_costs(some, flops)) for some in both]
    most = min(map(sum, costs))
    taken = [_within(some, most) for some in costs]
    kept = [list(islice(some, count)) for some, count in zip(both, taken)]
    results = [_results(some, signs, later) for some in kept]
    if not all(results):
        return None  # all trials of one wait for a machine
    lengths = [steps for some in results for steps, _ in some.values()]
    search, control = ([values for _, values in some.values()] for some in results)
    found = front_comparison.compare(search, control, lengths)
    if found is None:
        return None
    spent = [sum(islice(some, count)) for some, count in zip(costs, taken)]
    return Control(
        arm,
        name,
        (found.one, found.other),
        found.low,
        found.high,
        (len(search), len(control)),
        (spent[0], spent[1]),
        "FLOPs" if flops else "steps",
        len(start & results[0].keys()),
    )


def _costs(units: Sequence[Unit], flops: bool) -> Iterator[float]:
    """The cost of each unit: its own steps alone, times the FLOPs of one if they are known."""
    reached: dict[int, int] = {}
    for each in units:
        steps = max(0, each.steps - reached.get(each.number, 0))
        reached[each.number] = reached.get(each.number, 0) + steps
        yield steps * (each.step_flops or 0.0) if flops else float(steps)


def _within(costs: Sequence[float], most: float) -> int:
    """The number of first units that together cost about `most`, to the nearest unit; at least one."""
    spent = 0.0
    for count, each in enumerate(costs):
        if spent + each / 2 > most:
            return max(1, count)
        spent += each
    return len(costs)


def _results(
    units: Sequence[Unit], signs: Mapping[str, int], later: Later
) -> dict[int, tuple[int, tuple[float, ...] | None]]:
    """{trial: (training steps, values with signs such that smaller is better)}; None in place of missing values."""
    found: dict[int, tuple[int, tuple[float, ...] | None]] = {}
    for each in units:
        more = later.get(each.number, {})
        if not each.values or more is None:
            found.setdefault(each.number, (each.steps, None))
        elif signs.keys() <= (values := {**each.values, **more}).keys():
            found[each.number] = each.steps, tuple(sign * values[name] for name, sign in signs.items())
    return found
