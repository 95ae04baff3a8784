"""The short form of control arms: `control: {random: 0.2}`, or a list of architectures made by hand."""

from __future__ import annotations

from typing import Any

from nas.options import as_whole
from searchspace.language import documents

EXPECTED = "must be strategies with their share of the trials, such as {random: 0.2}, or a list of architectures"
PREFIX = "control-"  # of the names of these arms
LIST = "list"  # the name of an arm that is written as a list alone


def arms(written: Any, budget: Any) -> dict[str, Any]:
    """The arms that the short form `written` describes, in the form of `arms` of a search file. The name of each is
    `control-` and its own name. A list instead of a share has architectures made by hand, and its share is that of one
    trial for each. None means no arm. budget: that of the search file. Raises ValueError for another form, or if the
    share of a list is not known.
    """
    if written is None:
        return {}
    named = {LIST: written} if isinstance(written, list) else written
    if not isinstance(named, dict) or not all(isinstance(name, str) for name in named):
        raise ValueError(EXPECTED)
    return {f"{PREFIX}{name}": _arm(name, value, budget) for name, value in named.items()}


def place(file: Any, path: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """Where the part `path` of `arms` is written in the search file: below `control`, if that made it."""
    if path == ("arms",) and "control" in file and file.get("arms") in (None, {}):
        return ("control",)
    arm = str(path[1]) if len(path) > 1 and path[0] == "arms" else ""
    if not arm.startswith(PREFIX) or "control" not in file or arm in (file.get("arms") or {}):
        return path
    name = () if isinstance(file["control"], list) else (arm.removeprefix(PREFIX),)
    return ("control", *name, *(part for part in path[2:] if isinstance(part, int)))


def _arm(name: str, written: Any, budget: Any) -> dict[str, Any]:
    if not isinstance(written, list):
        return {"strategy": name, "share": written}
    if not written:
        raise ValueError(f"{name} has no architectures" if name != LIST else "the list has no architectures")
    trials = budget.get("trials") if isinstance(budget, dict) else None
    trials = as_whole(documents.number(trials) if isinstance(trials, str) else trials)
    if not isinstance(trials, int) or isinstance(trials, bool):
        path = f"arms: {{{name}: {{architectures: [...], share: 0.1}}}}"
        raise ValueError(f"a list needs `budget: {{trials: ...}}`; without it, state the share: {path}")
    if len(written) >= trials:
        raise ValueError(f"has {len(written)} architectures, as many as `budget` has trials, or more")
    return {"architectures": written, "share": len(written) / trials}
