"""Exports from a reference to files: the common part of `nas export` and `nas.export`.

Each file is written completely or not at all.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nas.errors import NasError, UsageError
from nas.exports import header
from nas.exports.header import ARCHITECTURE, TRAINING
from nas.exports.registry import make
from nas.exports.winner import Winner, best_number, of_record
from nas.exports.winner import winner as of_trial
from nas.files import check_writable, write_whole, writing

if TYPE_CHECKING:
    from nas.exports.checking import Checked

CARD = "README.md"
LOCK = "kernels.lock.json"
TAG = "tessera"  # of a card
FOLDERS = ("huggingface", "torch", "onnx", "aotinductor")
FILES = {"yaml", "safetensors"}  # formats of one file each, which need no folder
ALWAYS = ("yaml", "safetensors")  # a folder can always be read again


def write(winner: Winner, path: Path, formats: Iterable[str] = ("yaml",)) -> list[Path]:
    """Write a trial in each of `formats` and return the paths of the files. Nothing is written if one format fails.

    Raises UsageError for an unknown format or an invalid path, NasError if a file cannot be made or written.
    """
    check_writable(path)
    contents = {file: content for name in formats for file, content in make(name).files(winner, path).items()}
    _write(contents, path.parent)
    return list(contents)


def _write(contents: Mapping[Path, bytes], folder: Path) -> None:
    for file in contents:
        if file.parent == folder or file.parent.is_dir():
            check_writable(file)
    with contextlib.ExitStack() as names:  # the files get their names when all of them are on the disk
        for path, content in contents.items():
            if folder in path.parent.parents:
                try:
                    path.parent.mkdir(parents=True, exist_ok=True)
                except OSError as error:
                    raise NasError(f"Could not make the folder {path.parent}: {error.strerror or error}.") from None
            unnamed = names.enter_context(writing(path))
            unnamed.write(content)
            unnamed.flush()


def check_folder(folder: Path) -> None:
    """Raise UsageError if an export to `folder` would replace other work."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file: name a folder for these formats.")
    if (folder / TRAINING).exists():
        raise UsageError(f"{folder} holds a training, which the exported weights would hide. Name another folder.")
    for name, is_ours in ((CARD, _is_card), (ARCHITECTURE, header.read)):
        if (folder / name).is_file() and not is_ours(folder / name):
            raise UsageError(f"{folder / name} is not of an export and would be replaced. Name another folder.")


def _check_older(folder: Path, written: Collection[Path]) -> None:
    """Raise UsageError if files of an older export would stay next to those that are `written`."""
    places = [*(folder.glob("model.py")), *(each for name in FOLDERS for each in (folder / name).rglob("*"))]
    older = sorted(str(each) for each in places if each.is_file() and each.name != CARD and each not in written)
    older = [each for each in older if "__pycache__" not in each]
    if older and (folder / ARCHITECTURE).is_file():
        raise UsageError(
            f"{folder} holds files of an older export that this one does not replace: {', '.join(older[:5])}. "
            "Remove them, add their format, or name another folder."
        )


def _is_card(path: Path) -> bool:
    return f"tags:\n- {TAG}\n" in path.read_text(encoding="utf-8", errors="replace")


@dataclass(frozen=True)
class Exported:
    """path: the file or folder. files: all written files. checked: the results of the check; None without a check."""

    path: Path
    files: list[Path]
    checked: list[Checked] | None

    @property
    def wrong(self) -> list[str]:
        """The problems that the check found, one sentence each."""
        return [f"{each.format}: {problem}" for each in self.checked or () for problem in each.wrong]

    @property
    def failure(self) -> str:
        """The message if the check found problems."""
        return "The export does not pass its check:\n  - " + "\n  - ".join(self.wrong)


def write_folder(
    winner: Winner, folder: Path, formats: Sequence[str], *, check: bool = True, latency: float | None = None
) -> Exported:
    """Write a trial in each of `formats` into `folder`, with a model card, and load everything again.

    The architecture and its weights are always written. latency: the tolerance of the check, a fraction. Nothing is
    written if one format fails. Raises UsageError or NasError as `write` does; the caller looks at `Exported.wrong`.
    """
    from nas.exports import checking
    from nas.exports.card import card

    check_folder(folder)
    lock = _lock(winner)
    winner = replace(winner, origin={**winner.origin, "kernels": LOCK if lock else "no tuned table serves this device"})
    path = folder / ARCHITECTURE
    chosen = list(dict.fromkeys([*ALWAYS, *formats]))
    contents: dict[Path, bytes] = {}
    for name in chosen:
        contents |= make(name).files(winner, path)
    if lock:
        contents[folder / LOCK] = lock
    _check_older(folder, contents)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NasError(f"Could not make the folder {folder}: {error.strerror or error}.") from None
    tolerance = checking.LATENCY if latency is None else latency
    names = [file.relative_to(folder).as_posix() for file in contents]
    cards = [folder / CARD, *([folder / "huggingface" / CARD] if "huggingface" in chosen else [])]
    unchecked = card(winner, names, None, tolerance).encode()  # stays if the check is stopped
    _write(contents | dict.fromkeys(cards, unchecked), folder)
    checked = checking.check(winner, folder, chosen, latency=tolerance) if check else None
    for each in cards if check else ():
        write_whole(each, card(winner, names, checked, tolerance).encode())
    return Exported(folder, [*contents, folder / CARD], checked)


def _lock(winner: Winner) -> bytes | None:
    """The tuned choices of this device as a lock file; None if no table serves it."""
    from tuner.search import tables

    environment: Mapping[str, Any] = dict(winner.origin.get("environment") or {})
    device = "cuda" if str(environment.get("device", "")).startswith("cuda") else "cpu"
    with tempfile.TemporaryDirectory() as place:
        try:
            tables.lock(device, Path(place) / LOCK, "default")
        except (ValueError, RuntimeError):
            return None
        return (Path(place) / LOCK).read_bytes()


@contextlib.contextmanager
def chosen(reference: str, storage: str | None, *, best: bool = False, trial: int | None = None) -> Iterator[Winner]:
    """What to export: a trial, an exported file or folder, or the folder of a training. Its store is open inside.

    reference: STUDY with `best` or `trial`; STUDY:TRIAL, such as quickstart:17 or quickstart:final-2; or a path. Raises
    UsageError if it does not name exactly one.
    """
    from nas import location

    named = location.trial_reference(reference)
    if named is not None and not best and trial is None:
        reference, trial = named
    elif Path(reference).exists() and not best and trial is None:
        from nas.trained import recorded

        yield of_record(recorded.find(reference, storage))
        return
    if best == (trial is not None):
        raise UsageError(f"Name one trial of the study: --best or --trial N, or {reference}:N.")
    store, found = location.open_existing(reference, storage)
    with store:
        number = best_number(store, found) if trial is None else trial
        yield of_trial(store, found, number)


def written(
    found: Winner,
    reference: str,
    out: Path | None,
    formats: Sequence[str],
    *,
    check: bool = True,
    latency: float | None = None,
) -> Exported:
    """Write `found` into `out`: a file that ends in .yaml, or a folder; by default STUDY-TRIAL.yaml, or STUDY-TRIAL.

    A folder is checked unless `check` is false. latency: the tolerance of the check, a fraction. Raises UsageError or
    NasError as `write_folder` does.
    """
    name = f"{found.origin.get('study', Path(reference).stem)}-{found.address}"
    if not set(formats) <= FILES if out is None else _is_folder(out, formats):
        return write_folder(found, out or Path(name), formats, check=check, latency=latency)
    path = out or Path(f"{name}.yaml")
    return Exported(path, write(found, path, formats), None)


def _is_folder(out: Path, formats: Sequence[str]) -> bool:
    """Whether `out` names a folder: it is one, or it has no ending and the formats need one."""
    if out.suffix in (".yaml", ".yml", ".safetensors"):
        return False
    return not set(formats) <= FILES or (out.suffix == "" and (not out.is_dir() or (out / ARCHITECTURE).is_file()))
