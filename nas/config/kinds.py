"""What a file is, for messages about a file in the place of another one."""

from __future__ import annotations

import shlex
from pathlib import Path

from nas.files import is_file
from nas.tasks.fields import BYTES
from searchspace.errors import SpaceError, nearest
from searchspace.language import documents, language
from searchspace.tree import has_holes

ENDINGS = (".yaml", ".yml")
SQLITE = b"SQLite format 3\0"  # how a SQLite file begins


def is_database(path: Path) -> bool:
    """Whether the file is a SQLite database. False for a file that cannot be read."""
    if not is_file(path):
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(SQLITE)) == SQLITE
    except OSError:  # who reads it next says why
        return False


def is_search_file(path: Path) -> bool:
    """Whether the file has the keys of a search file. False for a file that cannot be read."""
    try:
        found = documents.load(path, tags=language.TAGS).data
    except SpaceError:
        return False
    return isinstance(found, dict) and "kind" not in found and {"study", "space"} <= found.keys()


def is_space(path: Path) -> bool:
    """Whether the file is a space with holes. False for a file that cannot be read."""
    try:
        return has_holes(language.load(path, BYTES).root)
    except SpaceError:
        return False


def not_a_space(path: Path) -> str:
    """If the file is not a space but of another kind: what it is and what was expected. Otherwise ""."""
    expected = "expected the file of a space, with `kind: decoder` or another kind at its top"
    if is_database(path):
        return f"{path} is a study database, but {expected}"
    if is_search_file(path):
        return f"{path} is a search file, but {expected}, such as the one that this search file names as its `space`"
    return ""


def not_an_architecture(path: Path) -> str:
    """If the file is not an architecture but of another kind: what it is and what to do with it. Otherwise ""."""
    named = "An architecture of its study is written STUDY:TRIAL, as in quickstart:17"
    if is_database(path):
        option = f"--storage {shlex.quote(str(path))} (in Python `storage`)"
        return f"{path} is a study database, not an architecture. {named}, with {option}."
    if is_search_file(path):
        return f"{path} is a search file, not an architecture; `nas search {shlex.quote(str(path))}` runs it. {named}."
    if is_space(path):
        file = shlex.quote(str(path))
        return (
            f"{path} is a space, not an architecture: `nas space {file}` prints it, and `nas space {file} -n 1` "
            "draws architectures from it."
        )
    return ""


def near_file(path: Path) -> str:
    """ " Did you mean 'x.yaml'?" for the YAML file in the same folder whose name is nearest to `path`, or ""."""
    known = [each.name for ending in ENDINGS for each in path.parent.glob(f"*{ending}")]
    return nearest(path.name, known)


def python_file(path: Path) -> str:
    """If this is a file of Python code: what it is and how a search file names it. Otherwise ""."""
    if path.suffix != ".py":
        return ""
    return (
        f"{path} is a Python file, not a search file. A search file names a task of your own as `task: {path.name}`, "
        f"and blocks of your own as `blocks: [{path.name}]`."
    )
