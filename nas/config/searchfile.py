"""The reader of search files. It reports all mistakes of a file together, each with its line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nas.config.reading import Reading, short
from nas.config.schema import SearchConfig
from nas.errors import UsageError
from searchspace.errors import Problem, SpaceError
from searchspace.language import documents, language
from searchspace.language.collecting import collected_later


@collected_later()
def load(path: str | Path, changes: Sequence[str] = ()) -> SearchConfig:
    """Read a search file. changes: `KEY=VALUE`, values in place of those in the file.

    Raises UsageError with every mistake in it, or if it cannot be read.
    """
    path = Path(path)
    try:
        document = documents.load(path, tags=language.TAGS)
        for change in changes:
            _change(document.data, change)
        return _read(document, path.parent)
    except SpaceError as error:
        raise UsageError(str(error)) from None


def _change(data: Any, change: str) -> None:
    """Put the value of `a.b=value`, written in YAML, into `data`; the name of an item of a list is its number from 0.

    Raises UsageError if there is no such place.
    """
    path, equals, text = change.partition("=")
    names = path.strip().split(".")
    if not equals or not all(names):
        raise UsageError(f"--set needs KEY=VALUE such as budget.trials=20, but got {change!r}.")
    if not text.strip():
        raise UsageError(f"--set {change} has no value; `{change}null` takes a value away.")
    place = data
    for number, name in enumerate(names[:-1]):
        if isinstance(place, dict):
            if place.get(name) is None:  # left out, or nothing stands below it
                place[name] = {}
            place = place[name]
        else:
            place = place[_item(place, names[: number + 1], change)]
    key = names[-1] if isinstance(place, dict) else _item(place, names, change)
    place[key] = documents.parse(text, "--set", tags=language.TAGS).data


def _item(place: Any, names: Sequence[str], change: str) -> int:
    """The number of the last of `names` in the list `place`. Raises UsageError if it is no list or has no such item."""
    above, name = ".".join(names[:-1]), names[-1]
    if not isinstance(place, list):  # such as a part that is written by its name alone
        raise UsageError(f"--set {change}: {above} is {short(place)}, which is not a mapping and has no {name!r}.")
    if not (name.isdecimal() and int(name) < len(place)):
        raise UsageError(f"--set {change}: {above} is a list, whose items are 0 to {len(place) - 1}, not {name!r}.")
    return int(name)


def loaded(config: Any, caller: str) -> SearchConfig:
    """`config` itself, or the search file at this path. Raises UsageError if it is neither, or the file is invalid."""
    if isinstance(config, SearchConfig):
        return config
    if isinstance(config, str | Path) and str(config) and not _is_text(str(config)):
        return load(config)
    raise UsageError(
        f"{caller} expects the path of a search file, or a SearchConfig that `nas.config.searchfile.parse` made from "
        f"YAML text, but got {short(config)} ({type(config).__name__})."
    )


def _is_text(given: str) -> bool:
    """Whether this is the text of a search file in place of its path."""
    return "\n" in given or ": " in given


@collected_later()
def parse(text: str, source: str = "<text>", folder: str | Path = ".") -> SearchConfig:
    """Like `load`, from text; relative paths are taken from `folder`. Raises UsageError with every mistake in it."""
    try:
        return _read(documents.parse(text, source, tags=language.TAGS), Path(folder))
    except SpaceError as error:
        raise UsageError(str(error)) from None


def _read(document: documents.Document, folder: Path) -> SearchConfig:
    if not isinstance(document.data, dict):
        expected = "expected keys such as study, space, task"
        raise SpaceError([Problem(f"{expected}, but found {documents.describe(document.data)}", document.mark())])
    if "kind" in document.data and not {"study", "space", "task"} & document.data.keys():
        raise SpaceError([Problem(SPACE_FILE, document.mark(("kind",)))])
    return Reading(document, folder).run()


SPACE_FILE = """\
this file is a space or an architecture, not a search file. A search file names the space, and says what to train on:
  study: my_study
  space: FILE
  task: language_model
  objectives: [bits_per_byte, flops]
  scheduler: {halving: {rungs: [40, 120, 360]}}
  budget: {trials: 50}
`nas space FILE` looks into a space, `nas train FILE` trains an architecture"""
