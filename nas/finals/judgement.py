"""Stores how the finals of a study ended, so that every later reader finds it without computing it again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from statistics import fmean
from typing import Any

from nas.config.parts import parts
from nas.finals import savings, speed
from nas.finals.expected import STRONG, kind
from nas.finals.finals import Finals
from nas.finals.lengths import Lengths
from nas.finals.result import Report, Result
from nas.finals.sentence import sentence
from nas.objectives.contract import Direction
from nas.report.finals import answers
from nas.report.trials import at_trial_depth
from nas.store import StoredVerdict
from searchspace.cost import Shape
from searchspace.model.build import cost

VERSION = 2  # of the document; the first one had no lengths


def keep(finals: Finals, report: Report, extends: Mapping[str, Any] | None = None) -> None:
    """Add the verdict to the store. Speeds are measured for new entrants.

    extends: the finals of the search file, if these extend them. Nothing is added if no run has ended since the newest
    verdict, and that one is of the same finals or, for the search file, extends them.
    """
    store, study = finals.store, finals.study
    before = store.verdict(study.id)
    document = _document(finals, report) | {"extends": extends}
    sequence = store.mark(study.id).sequence
    if before is not None and before.document["sequence"] == sequence and _answers(before.document, document):
        return
    known = _speeds(before)
    hashes = [each["hash"] for each in document["entrants"]]
    if set(hashes) - known.keys():
        results = [*report.finalists, *report.controls, *report.baselines]
        known = dict(zip(hashes, speed.in_turns(finals.config, [each.architecture for each in results])))
    for each in document["entrants"]:
        each["tokens_per_second"] = known[each["hash"]]
    document["savings"] = _savings(report, document)
    document["sentence"] = _sentences(finals, report, document)
    store.add_verdict(study.id, document | {"sequence": sequence})


def _answers(before: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether the stored verdict says what the new one would say, or answers the search file of the new one."""
    if before.get("version") != VERSION:
        return False
    if "finals" in before:
        return answers(before, new["finals"]) if new["extends"] is None else before["finals"] == new["finals"]
    more = set(new["lengths"]) - set(before["lengths"]) or _names(new) - _names(before)
    return not more and bool(new["tries"] == before["tries"])


def _names(document: Mapping[str, Any]) -> set[str]:
    return {each["name"] for each in document["entrants"]}


def _speeds(before: StoredVerdict | None) -> dict[str, float]:
    entrants = before.document.get("entrants", []) if before is not None else []
    return {each["hash"]: each["tokens_per_second"] for each in entrants}


def _document(finals: Finals, report: Report) -> dict[str, Any]:
    """Plain data that `nas.report.finals` reads."""
    plan, config = finals.plan, finals.config
    return {
        "version": VERSION,
        "finals": config.finals.model_dump(mode="json"),
        "objective": report.objective,
        "direction": str(finals.objective.direction),
        "top": config.finals.top,
        "seeds": len(plan.seeds),
        "lengths": list(report.lengths),
        "tries": [dict(each) for each in plan.tries],
        "tuning_share": report.tuning_share,
        "entrants": [
            _entrant(finals, each, each is report.winner)
            for each in (*report.finalists, *report.controls, *report.baselines)
        ],
        "against": _by_length(report.against),
        **_comparison(report.comparison),
        "controls": {name: _comparison(found) for name, found in report.of_controls.items() if found is not None},
        "out": list(report.out),
        "missing": list(report.missing),
        "left_out": list(left_out(finals)),
    }


def _comparison(found: Lengths | None) -> dict[str, Any]:
    """The word, the verdict at each length, and how the difference changes with the length."""
    if found is None:
        return {"word": None, "verdicts": {}, "trend": None}
    verdicts = {steps: _plain(asdict(each)) for steps, each in found.verdicts.items()}
    return {"word": found.word, "verdicts": _by_length(verdicts), "trend": found.trend and _plain(asdict(found.trend))}


def _plain(found: dict[str, Any]) -> dict[str, Any]:
    """As JSON has it: tuples as lists; None for a number that is not finite."""
    return {name: _jsonable(value) for name, value in found.items()}


def _jsonable(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return list(value) if isinstance(value, tuple) else value


def _sentences(finals: Finals, report: Report, document: dict[str, Any]) -> str:
    """The verdict in words: against the best baseline, then against each control."""
    costs = {each["name"]: each["training_flops"] for each in document["entrants"]}
    winner = report.winner.entrant.name
    about: dict[str, Any] = {
        "metric": f"{report.objective} on test data",
        "candidate": winner,
        "maximised": finals.objective.direction is Direction.MAXIMISE,
    }
    if report.comparison is None or report.baseline is None:
        said = ["No baseline has a result, so there is nothing to compare with."]
    else:
        best = f"the best baseline ({' / '.join(dict.fromkeys(report.against.values()))})"
        compute = costs[winner] / costs[report.baseline.entrant.name]
        said = [sentence(report.comparison, baseline=best, compute=compute, **about)]
        if document["savings"]:
            said.append(document["savings"]["sentence"])
    for name, found in report.of_controls.items():
        if found is None:
            said.append(f"The {name} is the same architecture as {winner}.")
        else:
            said.append(sentence(found, baseline=f"the {name}", compute=costs[winner] / costs[name], **about))
    said += [f"No trial of arm {arm} has finished, so there is no control." for arm in report.empty_arms]
    return "Verdict: " + " ".join(said)


def _savings(report: Report, document: dict[str, Any]) -> dict[str, Any] | None:
    """How much less training the winner needs; None with one length or without a baseline."""
    if report.reach is None or report.baseline is None:
        return None
    entrants = {each["name"]: each for each in document["entrants"]}
    winner, baseline = entrants[report.winner.entrant.name], entrants[report.baseline.entrant.name]
    found = savings.savings(
        report.reach,
        shortest=min(steps for steps, values in report.winner.test.items() if values),
        longest=report.lengths[-1],
        flops=(winner["training_flops"], baseline["training_flops"]),
        speeds=(winner["tokens_per_second"], baseline["tokens_per_second"]),
        parameters=(winner["parameters"], baseline["parameters"]),
    )
    said = savings.sentence(found, report.winner.entrant.name, "the best baseline", report.lengths[-1])
    return {**asdict(found), "sentence": f"{said[:1].upper()}{said[1:]}"}


def _shape(finals: Finals, result: Result) -> Shape:
    """The shape of a sequence, with halting blocks at the depth that counts everywhere else: that of the trial of the
    search. A baseline has none, so it has the depth of its runs."""
    if result.entrant.role == "baseline":
        return _shape_in_runs(finals, result)
    return at_trial_depth(finals.store, finals.study, result.entrant.trial, parts(finals.config).shape)


def _shape_in_runs(finals: Finals, result: Result) -> Shape:
    """The shape of a sequence, with halting blocks at the mean depth that the longest runs measured."""
    shape = parts(finals.config).shape
    runs = result.trials[finals.plan.longest]
    depths = [shape.at_depth(finals.store.metrics(finals.study.id, number, 0)).halting_steps for number in runs]
    known = [depth for depth in depths if depth is not None]
    return replace(shape, halting_steps=fmean(known)) if known else shape


def _entrant(finals: Finals, result: Result, is_winner: bool) -> dict[str, Any]:
    entrant = result.entrant
    found = cost(entrant.architecture, _shape(finals, result))
    return {
        "name": entrant.name,
        "role": entrant.role,
        "is_winner": is_winner,
        "trial": entrant.trial,
        "hash": entrant.architecture.hash,
        "architecture": entrant.architecture.text(),
        "note": entrant.note,
        "options": dict(result.options),
        "at_the_edge": list(result.at_the_edge),
        **{name: _by_length({k: list(v) for k, v in getattr(result, name).items()}) for name in LISTS},
        "failed": _by_length(result.failed),
        "parameters": found.parameters,
        "flops": found.expected_flops,
        "flops_in_runs": cost(entrant.architecture, _shape_in_runs(finals, result)).expected_flops,
        # Training computes the steps of a halting block until the last position of the batch has halted: at most all.
        "training_flops": found.training_flops,
        "state_bytes": found.state_bytes,
        "activation_bytes": found.activation_bytes,
    }


LISTS = ("validation", "test", "seeds", "trials")


def _by_length(found: Any) -> dict[str, Any]:
    """With lengths as text, as JSON has them."""
    return {str(steps): value for steps, value in found.items()}


def left_out(finals: Finals) -> Iterator[str]:
    """What the defaults of the finals have and these do not, one phrase each."""
    plan = finals.plan
    if len(plan.lengths) == 1:
        yield "longer training"
    if len(plan.seeds) < 3:
        yield "a third seed"
    if len(plan.tries) == 1:
        yield "tuning of the learning rate"
    missing = [name for name in STRONG[kind(finals.config)] if name not in plan.baselines]
    if missing:
        yield f"the baselines {', '.join(missing)}" if len(missing) > 1 else f"the baseline {missing[0]}"
    if "flops" not in plan.match:
        yield "baselines with the same FLOPs"
    if "parameters" not in plan.match:
        yield "baselines with the same parameters"
    if len(plan.shapes) == 1:
        yield "baselines in a second shape"
    if finals.config.task.options.get("evaluation") is not None:
        yield "a part of the held-out data"
    if not finals.config.arms:
        yield "a control arm with random search"
