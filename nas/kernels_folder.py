"""Which distribution the top-level package `kernels` belongs to: ours, or Hugging Face's, which has the same name.

If both are installed into one folder, only `kernels/__init__.py` is the same file, and both work if theirs was written
last. If they are in two folders, Python imports the one that comes first on its path.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

CURE = "pip install --force-reinstall --no-deps"


def problem() -> str | None:
    """What is wrong with the package `kernels` and how to cure it, in one sentence; None if it is usable."""
    spec = find_spec("kernels")
    if spec is None or spec.origin is None:
        return f"The package `kernels` of tessera-nas is missing; run `{CURE} tessera-nas`."
    folder = Path(spec.origin).parent
    if not (folder / "dispatch").is_dir():
        return (
            f"Python finds Hugging Face's package `kernels` in {folder} instead of ours; install tessera-nas into the "
            f"same folder (`{CURE} tessera-nas`, then `{CURE} kernels`), or run it in an environment without theirs."
        )
    if theirs(folder) and "_FOLDER" in Path(spec.origin).read_text(encoding="utf-8"):
        return (
            f"Hugging Face's distribution `kernels` shares {folder} and has lost its __init__.py to ours; run "
            f"`{CURE} kernels`, after which both work."
        )
    return None


def theirs(folder: Path) -> bool:
    """Whether Hugging Face's distribution is installed into the package folder `folder`."""
    return any(folder.parent.glob("kernels-*.dist-info"))


def check() -> None:
    """Raise ImportError with the cure if `kernels` is not ours."""
    found = problem()
    if found and "has lost" not in found:
        raise ImportError(found)
