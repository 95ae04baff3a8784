"""Adds missing entries to the golden files; recorded entries are never changed.

Run `python tests/searchspace/golden/record.py` after you add a block or a file, and commit the result. Changing a
hash or a default would need a new `HASH_VERSION` and a migration of every study, because the hash identifies each
architecture that was tried.
"""

import json
from dataclasses import MISSING
from pathlib import Path
from typing import Any

from searchspace import registry
from searchspace.language import canonical, schema
from searchspace.model.architecture import Architecture

FOLDER = Path(__file__).parent
REQUIRED = {"required": True}  # recorded for a field without a default


def hashes() -> dict[str, str]:
    """The hash of every architecture in this folder."""
    return {path.name: Architecture.load(path).hash for path in sorted(FOLDER.glob("*.yaml"))}


def defaults() -> dict[str, dict]:
    """The declared default of every field of every block, by role and name."""
    return {
        f"{role} {name}": {field.name: encoded(schema.default(field)) for field in kind.fields.values()}
        for role in ("model", "block", "norm", "position")
        for name, kind in registry.block_types(role).items()
    }


def encoded(default: Any) -> Any:
    return REQUIRED if default is MISSING else canonical.encoded(default)


def recorded(name: str) -> dict:
    path = FOLDER / name
    return json.loads(path.read_text()) if path.exists() else {}


def record() -> None:
    known = recorded("defaults.json")
    merged = {name: fields | known.get(name, {}) for name, fields in defaults().items()}
    write("defaults.json", known | merged)
    write("hashes.json", hashes() | recorded("hashes.json"))


def write(name: str, content: dict) -> None:
    (FOLDER / name).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    record()
