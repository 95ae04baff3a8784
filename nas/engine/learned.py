"""Reads what a new study learns from earlier ones (`learn_from` of a strategy), so that the study can keep it.

What was read is kept in the study's configuration. So a search that is resumed or replayed proposes the same points,
even if an earlier study has continued since then. From a large study, the best trials and some others are read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from nas import location, pareto
from nas.config.parts import parts
from nas.config.schema import SearchConfig
from nas.errors import NasError, UsageError
from nas.objectives.contract import Objective
from nas.options import Names
from nas.store import Reader, Study, Trial, TrialState, open_reader
from nas.store.database.engine import file_of, parse
from nas.strategies._surrogate.codes import Codes
from nas.strategies._surrogate.earlier import FEWEST, readable
from nas.strategies._surrogate.warp import subset
from nas.strategies.earlier import Earlier
from searchspace.suggestions import nearest

OPTION = "learn_from"
MOST = 256  # trials of one study
MOST_FILES = 50  # that are opened to list the studies in them


def with_learned(config: SearchConfig, store: Reader | None = None) -> SearchConfig:
    """`config` with the results of the studies that its strategies learn from.

    store: the database of the new study; None if there is none yet. If the database does not have a study, the file
    named after that study in the same folder is read, provided that the file of the new study is named after the new
    study. Raises UsageError for an unknown study, and for one without an objective, a hole or enough results that the
    new search can use.
    """
    strategies = config.strategy, *(arm.strategy for arm in config.arms.values())
    wanted = [name for named in strategies for name in _wanted(named.options.get(OPTION, ()))]
    if not wanted:
        return config
    return config.model_copy(update={"learned": {name: _read(config, store, name) for name in dict.fromkeys(wanted)}})


def _wanted(written: Any) -> Sequence[str]:
    try:
        return TypeAdapter(Names).validate_python(written)
    except ValidationError:
        return ()  # the strategy says what is wrong with it


def _read(config: SearchConfig, store: Reader | None, name: str) -> dict[str, Any]:
    if name == config.study:
        raise UsageError(f"{OPTION}: the study {name!r} cannot learn from itself: it does so anyway.")
    with _opened(config, store, name) as (found, study):
        objectives = parts(config).objectives
        shared = [place for place, each in enumerate(objectives) if each.name in _objectives(study)]
        if not shared:
            raise UsageError(
                f"{OPTION}: the study {name!r} has no objective in common with this search. It has "
                f"{', '.join(_objectives(study))}; the search has {', '.join(each.name for each in objectives)}."
            )
        chosen = _chosen(found, study, [objectives[place] for place in shared])
        heavy = [found.trial(study.id, each.number) for each in chosen]
    usable = [each for each in heavy if each.choices]
    earlier = Earlier(
        name,
        tuple(shared),
        tuple(dict(each.choices) for each in usable),
        tuple(each.steps or 1 for each in usable),
        tuple(_values(each, [objectives[place] for place in shared]) for each in usable),
    )
    _check(config, earlier, name)
    return {**earlier.as_dict(), "sequence": study.sequence}


def _check(config: SearchConfig, earlier: Earlier, name: str) -> None:
    """Raise UsageError if nothing can be learned from an earlier study."""
    codes = Codes(parts(config).space)
    if earlier.choices and not any(path in codes.place for each in earlier.choices for path in each):
        raise UsageError(
            f"{OPTION}: the space of the study {name!r} has no hole in common with this one. A hole is the same if it "
            f"stands at the same place. Its first is {next(iter(earlier.choices[0]))!r}; this space has "
            f"{', '.join(map(repr, codes.paths[:3])) or 'no holes'}."
        )
    rows, _ = readable(codes, earlier)
    if len(rows) < FEWEST:
        raise UsageError(
            f"{OPTION}: {len(rows)} finished trials of the study {name!r} lie in this space; at least {FEWEST} are "
            "needed."
        )


@contextmanager
def _opened(config: SearchConfig, store: Reader | None, name: str) -> Iterator[tuple[Reader, Study]]:
    """The database that holds the study `name`, and the study."""
    if store is not None and name in {each.name for each in store.studies()}:
        yield store, store.study(name)
        return
    files = _neighbours(config)
    if name not in files:
        own = [] if store is None else [each.name for each in store.studies()]
        known = sorted({*own, *_held(files.values())} - {config.study})
        where = location.shown(config.storage) + (" or in another file of its folder" if files else "")
        listed = f" Known: {', '.join(known)}." if known else ""
        raise UsageError(f"{OPTION}: no study is called {name!r} in {where}.{nearest(name, known)}{listed}")
    with open_reader(files[name]) as other:
        if name not in (held := [each.name for each in other.studies()]):
            raise UsageError(f"{OPTION}: {files[name]} has no study {name!r}, but {', '.join(held) or 'none at all'}.")
        yield other, other.study(name)


def _neighbours(config: SearchConfig) -> dict[str, Path]:
    """The files in the folder of this search's own file, by name; none if that file is not named after the study."""
    own = file_of(parse(config.storage))
    if own is None or own.stem != config.study:
        return {}
    return {each.stem: each for each in sorted(own.parent.glob(f"*{own.suffix}")) if each != own}


def _held(files: Iterable[Path]) -> Iterator[str]:
    """The studies that can be learned from: each is in the file that is named after it."""
    for file in islice(files, MOST_FILES):
        with suppress(NasError), open_reader(file) as store:
            yield from (each.name for each in store.studies() if each.name == file.stem)


def _objectives(study: Study) -> list[str]:
    return [each["name"] for each in study.objectives]


def _chosen(store: Reader, study: Study, objectives: Sequence[Objective]) -> list[Trial]:
    """Up to `MOST` trials with all values, without their choices: those trained longest first, then the best."""
    ended = (TrialState.COMPLETE, TrialState.STOPPED)
    trials = store.trials(study.id, states=ended, purposes=("search",), light=True)
    known = [each for each in trials if each.values and all(math.isfinite(v) for v in _values(each, objectives))]
    ranked: list[int] = []
    for steps in sorted({each.steps or 1 for each in known}, reverse=True):
        places = [place for place, each in enumerate(known) if (each.steps or 1) == steps]
        order = pareto.order([_values(known[place], objectives) for place in places])
        ranked += [places[index] for index in order]
    return [known[place] for place in sorted(subset(np.array(ranked, dtype=int), MOST))]


def _values(trial: Trial, objectives: Sequence[Objective]) -> tuple[float, ...]:
    """The values of a trial, minimised as in the new search; not finite if one is missing."""
    return tuple(each.minimised(trial.values.get(each.name, math.nan)) for each in objectives)
