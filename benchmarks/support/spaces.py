"""The spaces that benchmarks draw random architectures from."""

from __future__ import annotations

from pathlib import Path

from searchspace.space.space import Space

EXAMPLES = Path(__file__).parents[2] / "examples" / "spaces"
EVERYTHING = ("everything", "everything_encoder", "everything_encoder_decoder")  # all blocks of each kind of model
VOCABULARY = 256  # of bytes


def loaded(space: str | Path) -> Space:
    """An example by its name, or the space in a file. If it leaves the vocabulary to the task, it is that of bytes.

    Raises SpaceError with all problems.
    """
    path = EXAMPLES / f"{space}.yaml" if isinstance(space, str) else space
    return Space.load(path, given={"vocabulary": VOCABULARY})
