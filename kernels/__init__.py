"""Fast operations, each with its definition. Light to import; knows nothing of models or searches."""

from pathlib import Path

_FOLDER = Path(__file__).parent


def __getattr__(name: str) -> object:
    """Explain a missing name if Hugging Face's distribution `kernels` is installed into this folder as well.

    Raises ImportError with the cure in that case, else AttributeError.
    """
    theirs = any(_FOLDER.parent.glob("kernels-*.dist-info"))
    if theirs and not name.startswith("_") and not (_FOLDER / name).is_dir() and not (_FOLDER / f"{name}.py").exists():
        raise ImportError(
            f"kernels.{name} is part of Hugging Face's distribution 'kernels', whose __init__.py was replaced when "
            "tessera-nas was installed into the same folder; both work after "
            "`pip install --force-reinstall --no-deps kernels`."
        )
    raise AttributeError(f"module 'kernels' has no attribute {name!r}")
