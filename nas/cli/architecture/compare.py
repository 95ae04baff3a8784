"""nas compare: two architectures side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from nas.cli.app import app
from nas.cli.options import LENGTH, AsJson, Length, Storage, architecture_argument, usual_length
from nas.cli.output import note, print_json
from nas.report.tables import rendered

if TYPE_CHECKING:
    from searchspace.model.architecture import Architecture


@app.command()
def compare(
    first: Annotated[str, architecture_argument("FIRST")],
    second: Annotated[str, architecture_argument("SECOND")],
    length: Length = None,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """How two architectures differ: what was changed, what each costs, and for trials what each scored.

    Example: nas compare transformer_decoder:small quickstart:17
    """
    from nas import architectures
    from searchspace.model.architecture import diff

    pair = [architectures.find(name, storage) for name in (first, second)]
    changes = [(each.kind, each.path, *each.texts) for each in diff(*pair)]
    length = length or _usual_length((first, second), storage)
    scores, costs = _scores((first, second), storage), _costs(pair, length)
    if as_json:
        keys = ("kind", "path", "first", "second")
        print_json(
            {
                "first": {"name": first, "hash": pair[0].hash},
                "second": {"name": second, "hash": pair[1].hash},
                "differences": [dict(zip(keys, change)) for change in changes],
                "scores": [dict(zip(("score", "first", "second"), row)) for row in scores],
                "length": length,
                "costs": [dict(zip(("cost", "first", "second"), row)) for row in costs],
            }
        )
        return
    names = [first, f"{second} (again)" if second == first else second]
    if changes:
        print(rendered([dict(zip(("where", *names), change[1:])) for change in changes]), end="\n\n")
    else:
        note("They are the same architecture.")
    if scores:
        print(rendered([dict(zip(("score", *names), row)) for row in scores]), end="\n\n")
    print(rendered([dict(zip((f"cost at length {length}", *names), row)) for row in costs]))


def _usual_length(names: tuple[str, str], storage: str | None) -> int:
    """That of the study, where there is one or both are of the same length."""
    known = {length for name in names if (length := usual_length(name, storage))}
    return known.pop() if len(known) == 1 else LENGTH


def _costs(pair: list[Architecture], length: int) -> list[tuple[Any, ...]]:
    """Every cost that either has."""

    from searchspace.model.build import cost

    one, two = (cost(each, length=length).numbers() for each in pair)
    return [(name, one[name], two[name]) for name in one if one[name] or two[name]]


def _scores(names: tuple[str, str], storage: str | None) -> list[tuple[Any, ...]]:
    """The objectives of those that are trials, and how long they were trained."""
    from nas.architectures import trial_reference
    from nas.location import open_existing

    found: list[dict[str, Any]] = []
    for name in names:
        reference = trial_reference(name)
        if reference is None:
            found.append({})
            continue
        store, study = open_existing(reference[0], storage)
        with store:
            trial = store.trial(study.id, reference[1])
        found.append({**trial.values, "rung": trial.rung, "state": trial.state.value})
    one, two = found
    return [(name, one.get(name), two.get(name)) for name in dict.fromkeys([*one, *two])]
