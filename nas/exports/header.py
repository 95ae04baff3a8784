"""The header of an exported architecture, comment lines at the head of its YAML file, and the paths of an export."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from searchspace.cost import Shape

MADE_BY = "Tessera (tessera-nas)"
ARCHITECTURE = "architecture.yaml"  # in a folder
TRAINING = "training.json"  # in the folder of a training: its evaluations and checkpoints
MODEL = "model"


def read(path: str | Path) -> Mapping[str, Any]:
    """The header that `nas.exports.origin` made, as plain data; empty if `path` is not an exported file."""
    import yaml

    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    head = "\n".join(
        line.removeprefix("#").removeprefix(" ") for line in takewhile(lambda each: each[:1] == "#", lines)
    )
    try:
        found = yaml.safe_load(head)
    except yaml.YAMLError:  # comments that the user wrote
        return {}
    return found if isinstance(found, dict) and "made_by" in found else {}


def comment(data: Mapping[str, Any]) -> str:
    """`data` as YAML in comment lines, for `read`. Texts of several lines, such as code, stay readable."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes texts of several lines as they are."""

    def written(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    Dumper.add_representer(str, written)
    lines = yaml.dump(data, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=110).splitlines()
    return "".join(f"# {line}".rstrip() + "\n" for line in lines)


def at_exported_depth(path: str | Path, shape: Shape, *, length: int | None) -> Shape:
    """`shape` with the depth of halting blocks that the exported trial measured, and with the length of its task unless
    `length` is given. Unchanged if `path` is not an exported file.
    """
    found = read(path)
    costs, searched = found.get("costs"), found.get("search")
    if length is None and isinstance(costs, dict) and isinstance(costs.get("length"), int):
        shape = replace(shape, length=costs["length"])
    metrics = searched.get("metrics") if isinstance(searched, dict) else None
    return shape.at_depth(metrics if isinstance(metrics, dict) else None)


def beside(path: Path, suffix: str) -> Path:
    """The file with another ending next to `path`, that of the YAML file: `best.py`, or `folder/model.py`."""
    return path.with_name(MODEL + suffix) if path.name == ARCHITECTURE else path.with_suffix(suffix)


def inside(path: Path, folder: str, name: str) -> Path:
    """The file `name` of a format that writes a folder: `best-huggingface/config.json`, or `folder/huggingface/..`."""
    return path.parent / (folder if path.name == ARCHITECTURE else f"{path.stem}-{folder}") / name
