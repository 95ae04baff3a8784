"""Pairs of sentences from two aligned files: read, divided into parts, and turned into numbers.

Line k of the source file belongs to line k of the target file. N pairs.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from nas.tasks.contract import SPLITS, Split
from nas.tasks.own import TaskProblem
from nas.tasks.text import overlap, parts, reading
from nas.tasks.vocabulary import UNKNOWN, WORD, Bytes, Sentences, Vocabulary

log = logging.getLogger(__name__)

START, END = "start", "end"


@dataclass(frozen=True)
class Pair:
    """A sentence and its translation, as text of one line each."""

    source: str
    target: str


@dataclass(frozen=True)
class Corpus:
    """The pairs of each part, with the SHA-256 of all files. empty: the number of pairs without a source or target."""

    pairs: Mapping[Split, list[Pair]]
    sha256: str
    empty: int


def read(source: Any, target: Any, shares: Sequence[float]) -> Corpus:
    """The pairs of the files. source, target: patterns, or those of each part, as `options.patterns` gives them.

    Pairs without given parts are divided by the hash of the source sentence, so equal sentences are in one part. Raises
    TaskProblem if a file cannot be read, is not UTF-8, or has a different number of lines than its partner.
    """
    found = hashlib.sha256()
    if isinstance(source, Mapping) != isinstance(target, Mapping) or (
        isinstance(source, Mapping) and set(source) != set(target)
    ):
        raise TaskProblem("source and target must name the same parts, or both must be patterns.")
    if not isinstance(source, Mapping):
        pairs, empty = _aligned(source, target, found)
        return Corpus(_divided(pairs, shares), found.hexdigest(), empty)
    _check_once(source, target)
    read, empty = {}, 0
    for part in source:
        read[part], lacking = _aligned(source[part], target[part], found)
        empty += lacking
    if "held_out" in read:
        held = _divided(read.pop("held_out"), (0.0, 0.5, 0.5))
        read |= {"validation": held["validation"], "test": held["test"]}
    return Corpus({split: read[split] for split in SPLITS}, found.hexdigest(), empty)


def _check_once(*sides: Mapping[str, Sequence[str]]) -> None:
    """Raise TaskProblem if a file is given for more than one part."""
    for side in sides:
        every = [path for patterns in side.values() for path in reading.files(patterns)]
        several = next((path for path in every if every.count(path) > 1), None)
        if several is not None:
            raise TaskProblem(f"{several} is given for more than one part.")


def _divided(pairs: Sequence[Pair], shares: Sequence[float]) -> dict[Split, list[Pair]]:
    """The pairs of each part. A held-out part has only the first of equal pairs, because copies are not independent."""
    rank = parts.hashes([each.source.encode() for each in pairs])
    found: dict[Split, list[Pair]] = {split: [] for split in SPLITS}
    seen: set[tuple[float, Pair]] = set()
    for each, number, place in zip(pairs, rank.tolist(), parts.places(rank, shares)):
        if place == parts.TRAIN or (number, each) not in seen:
            found[SPLITS[place]].append(each)
            seen.add((number, each))
    return found


def _aligned(source: Sequence[str], target: Sequence[str], found: Any) -> tuple[list[Pair], int]:
    """The pairs of files in their order, and the number of pairs without a source or target."""
    files = reading.files(source), reading.files(target)
    if len(files[0]) != len(files[1]):
        raise TaskProblem(f"source has {len(files[0])} files, but target has {len(files[1])}: they must be in pairs.")
    stems = [[Path(each).name.partition(".")[0] for each in side] for side in files]
    for one, other, stem, partner in zip(*files, *stems):
        if stem != partner and (stem in stems[1] or partner in stems[0]):
            log.warning("%s and %s are read as a pair, but their names belong to other files of the lists.", one, other)
    pairs = []
    for one, other in zip(*files):
        lines = [_lines(one, found), _lines(other, found)]
        if len(lines[0]) != len(lines[1]):
            raise TaskProblem(
                f"{one} has {len(lines[0])} lines, but {other} has {len(lines[1])}. Line k of one must be the "
                "translation of line k of the other."
            )
        pairs += [Pair(*each) for each in zip(*lines)]
    whole = [each for each in pairs if each.source and each.target]
    return whole, len(pairs) - len(whole)


def _lines(path: Any, found: Any) -> list[str]:
    data = reading.contents(path)
    found.update(len(data).to_bytes(8, "big") + data)
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise TaskProblem(f"{path}, byte {error.start}, is not UTF-8 ({error.reason}).") from None
    return [line.strip() for line in (lines if lines[-1] else lines[:-1])]


class Coder:
    """Turns sentences into symbols of one vocabulary for both languages: bytes, or the words of the training part."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.start, self.end = vocabulary.special_symbol(START), vocabulary.special_symbol(END)

    @classmethod
    def made(cls, level: str, pairs: Iterable[Pair], words: int) -> Coder:
        """The coder of the training `pairs`; of words the `words` most frequent ones."""
        if level == "bytes":
            return cls(Bytes([START, END]))
        counts = Counter(word for each in pairs for text in (each.source, each.target) for word in WORD.findall(text))
        frequent = sorted(counts, key=lambda word: (-counts[word], word))[:words]
        return cls(Sentences(frequent, [UNKNOWN, START, END]))

    def encode(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """The symbols of a sentence with the end, and the UTF-8 bytes of each, which add up to the line and newline."""
        symbols = np.array([*self.vocabulary.encode(text), self.end], np.int64)
        if not isinstance(self.vocabulary, Sentences):
            return symbols, np.ones(len(symbols), np.int64)
        ends = [0, *(each.end() for each in WORD.finditer(text))]
        widths = [len(text[before:end].encode()) for before, end in pairwise(ends)]  # with the space before it
        return symbols, np.array([*widths, len(text[ends[-1] :].encode()) + 1])


@dataclass(frozen=True)
class Coded:
    """Pairs as numbers, padded with the end. sources, targets: [N, T] int32; lengths: [N, 2], the number of
    symbols of each source and target. widths: [N, T], the UTF-8 bytes of the target symbols, 0 in the padding. cut: the
    number of pairs that did not fit."""

    sources: np.ndarray
    targets: np.ndarray
    lengths: np.ndarray
    widths: np.ndarray
    cut: int

    def __len__(self) -> int:
        return len(self.sources)


def coded(pairs: Sequence[Pair], coder: Coder, length: int, *, whole: bool) -> Coded:
    """The pairs in `length` symbols a sentence. whole: leave out pairs that do not fit, instead of cutting them."""
    encoded = [(coder.encode(each.source)[0], *coder.encode(each.target)) for each in pairs]
    long = [max(len(source), len(target)) > length for source, target, _ in encoded]
    kept = [each for each, too_long in zip(encoded, long) if not (whole and too_long)]
    sources, targets = (np.full((len(kept), length), coder.end, np.int32) for _ in range(2))
    widths, lengths = np.zeros((len(kept), length), np.int32), np.zeros((len(kept), 2), np.int64)
    for place, (source, target, width) in enumerate(kept):
        lengths[place] = min(len(source), length), min(len(target), length)
        sources[place, : lengths[place, 0]] = source[:length]
        targets[place, : lengths[place, 1]] = target[:length]
        widths[place, : lengths[place, 1]] = width[:length]
    return Coded(sources, targets, lengths, widths, sum(long))


@dataclass(frozen=True)
class Ready:
    """The pairs of each part as numbers, the coder that made them, and the facts for `Task.data_facts`."""

    coded: Mapping[Split, Coded]
    coder: Coder
    facts: Mapping[str, Any]


def ready(corpus: Corpus, level: str, words: int, length: int) -> Ready:
    """The `corpus` as numbers, in a vocabulary of its training part."""
    coder = Coder.made(level, corpus.pairs["train"], words)
    made = {split: coded(corpus.pairs[split], coder, length, whole=split == "train") for split in SPLITS}
    facts = facts_of(corpus) | {"too_long": {split: each.cut for split, each in made.items()}}
    return Ready(made, coder, facts)


def facts_of(corpus: Corpus) -> dict[str, Any]:
    """The facts about the pairs, with sizes and overlap of the target sentences. repeated: the share of the pairs whose
    target is a target of the training part too; a sentence may be shorter than the strings that `overlap` counts."""
    texts = {split: [f"{each.target}\n".encode() for each in corpus.pairs[split]] for split in SPLITS}
    train = np.frombuffer(b"".join(texts["train"]), np.uint8)
    known = {each.target for each in corpus.pairs["train"]}
    shares, repeated = {}, {}
    for split in ("validation", "test"):
        starts = np.concatenate([[0], np.cumsum([len(each) for each in texts[split]])])[:-1].astype(np.int64)
        held = np.frombuffer(b"".join(texts[split]), np.uint8)
        complete = max(1, int(overlap.complete(len(held), starts).sum()))
        shares[split] = float(overlap.repeated(held, starts, train).sum() / complete)
        targets = [each.target for each in corpus.pairs[split]]
        repeated[split] = sum(each in known for each in targets) / max(1, len(targets))
    return {
        "sha256": corpus.sha256,
        "document": "a pair of sentences",
        "bytes": {split: sum(map(len, each)) for split, each in texts.items()},
        "documents": {split: len(each) for split, each in texts.items()},
        "overlap": shares,
        "repeated": repeated,
        "empty": corpus.empty,
    }


def save(made: Ready, folder: Path) -> None:
    """Write prepared pairs to `folder`."""
    for split, each in made.coded.items():
        np.savez(folder / f"{split}.npz", **vars(each))
    about = {"vocabulary": made.coder.vocabulary.to_dict(), "facts": dict(made.facts)}
    (folder / "about.json").write_text(json.dumps(about))


def opened(folder: Path) -> Ready:
    """Read the pairs that `save` wrote."""
    about = json.loads((folder / "about.json").read_text())
    found: dict[Split, Coded] = {}
    for split in SPLITS:
        with np.load(folder / f"{split}.npz") as arrays:
            found[split] = Coded(**{name: arrays[name] for name in arrays} | {"cut": int(arrays["cut"])})
    return Ready(found, Coder(Vocabulary.from_dict(about["vocabulary"])), about["facts"])


def key(source: Any, target: Any, *others: Any) -> str:
    """A hash of everything that prepared pairs depend on: if a file changes, the key changes."""
    marks = []
    for side in (source, target):
        for part, patterns in side.items() if isinstance(side, Mapping) else [("", side)]:
            for path in map(Path, reading.files(patterns)):
                marks.append([part, str(path.absolute()), path.stat().st_size, path.stat().st_mtime_ns])
    return hashlib.sha256(json.dumps([marks, others]).encode()).hexdigest()[:16]
