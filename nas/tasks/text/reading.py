"""Text as numbers: files read in a fixed order and divided into parts, as bytes or as characters, with a hash."""

from __future__ import annotations

import bz2
import codecs
import glob
import gzip
import hashlib
import io
import json
import lzma
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from nas.files import is_file
from nas.tasks.own import TaskProblem
from nas.tasks.prepared import prepared
from nas.tasks.text import corpus, documents, parts
from nas.tasks.text.documents import File
from nas.tasks.text.parts import Arranged, Rules
from nas.tasks.vocabulary import Bytes, Characters, Vocabulary

Patterns = Sequence[str] | Mapping[str, Sequence[str]] | None
PLAIN = Rules()  # in the order of the files, nothing left out


@dataclass(frozen=True)
class Text:
    """symbols: [N] of an unsigned type, below `size`, in the order of the parts. widths: [size], the UTF-8 bytes of
    each symbol. sha256: of the bytes of the files. characters: the character of each symbol, None for bytes. starts:
    [D], where documents begin. bounds: the end of the training data, and of the validation data; None if positions
    divide. facts: `document`, what a document is, and `left_out`, bytes of held-out documents that are too long."""

    symbols: np.ndarray
    widths: np.ndarray
    sha256: str
    characters: str | None = None
    starts: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int64))
    names: tuple[str, ...] = ("text",)
    bounds: tuple[int, int] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of different symbols."""
        return len(self.widths)

    @property
    def vocabulary(self) -> Vocabulary:
        """Turns text into symbols and back."""
        return self.vocabulary_with(())

    def vocabulary_with(self, special: Sequence[str]) -> Vocabulary:
        """The vocabulary with `special` symbols after those of the text."""
        return Bytes(special) if self.characters is None else Characters(self.characters, special)

    def documents(self, places: np.ndarray) -> np.ndarray:
        """The number of the document of each place, int64 of the shape of `places`."""
        return np.searchsorted(self.starts, places, side="right") - 1

    def encoded(self, low: int, high: int) -> np.ndarray:
        """The UTF-8 bytes of the symbols from `low` to `high`, uint8."""
        if self.characters is None:
            return np.asarray(self.symbols[low:high])
        points = np.frombuffer(self.characters.encode("utf-32-le"), np.uint32)
        text = points[self.symbols[low:high]].tobytes().decode("utf-32-le")
        return np.frombuffer(text.encode(), np.uint8)


def read(patterns: Patterns, level: str, cache: Path | None, rules: Rules = PLAIN) -> Text:
    """The files of `patterns` one after the other, divided by `rules`.

    patterns: None is the embedded corpus, `standard_library` the source of the running Python. A mapping gives the
    files of each part. Raises TaskProblem if a pattern matches no file, or a file cannot be read or is not UTF-8.
    """
    sources = _sources(patterns)
    if cache is None:
        return _made(sources, level, rules)
    key = _key(sources, level, rules)
    return _open(prepared(cache, f"text5-{key}", lambda folder: _save(_made(sources, level, rules), folder)))


Sources = list[tuple[str | None, str | Path]]  # the part that it was given for, and a file or the name of a corpus


def _sources(patterns: Patterns) -> Sources:
    if patterns is None:
        return [(None, corpus.EMBEDDED)]
    if not isinstance(patterns, Mapping):
        return [(None, each) for each in files(patterns)]
    found: Sources = [(part, each) for part, names in patterns.items() for each in files(names)]
    several = [path for number, (_, path) in enumerate(found) if path in [other for _, other in found[:number]]]
    if several:
        raise TaskProblem(f"data: {several[0]} is given for more than one part.")
    return found


def files(patterns: Sequence[str]) -> list[str | Path]:
    """The files that match and the names of corpora, each once: in the order of `patterns`, those of one pattern in the
    order of their paths. A file that exists is no pattern. Raises TaskProblem if a pattern matches none."""
    found: list[str | Path] = []
    for pattern in patterns:
        if pattern in corpus.NAMES or is_file(Path(pattern)):
            found.append(pattern if pattern in corpus.NAMES else Path(pattern))
            continue
        matches = [Path(match) for match in glob.glob(pattern, recursive=True)]  # noqa: PTH207 (Path.glob takes no absolute pattern)
        regular = sorted(path for path in matches if path.is_file())
        if not regular:
            hint = " It is a folder; name the files in it." if any(path.is_dir() for path in matches) else ""
            raise TaskProblem(f"data: no file matches {pattern!r} (from {Path.cwd()}).{hint}")
        found += regular
    return list(dict.fromkeys(found))


def _read(sources: Sources) -> list[File]:
    files: list[File] = []
    common = _common([path for _, path in sources if isinstance(path, Path)])
    for part, source in sources:
        if isinstance(source, str):
            files += [File(name, data, part) for name, data in corpus.files(source)]
            continue
        files.append(File(source.absolute().relative_to(common).as_posix(), contents(source), part))
    return files


def contents(source: str | Path) -> bytes:
    """The text of a file: decompressed if it is compressed, in UTF-8 if it is in UTF-16 or UTF-32, and without a byte
    order mark. Text in an older encoding stays as it is.

    Raises TaskProblem if the file cannot be read, or does not look like text.
    """
    try:
        data = Path(source).read_bytes()
        for magic, decompress in COMPRESSED.items():
            if data.startswith(magic):
                data = decompress(data)
                break
        for mark, encoding in MARKS.items():
            if data.startswith(mark):
                data = data[len(mark) :].decode(encoding).encode()
                break
    except UnicodeDecodeError as error:
        raise TaskProblem(f"data: {source}, byte {error.start}, is not {error.encoding} ({error.reason}).") from error
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, zipfile.BadZipFile) as error:
        raise TaskProblem(f"data: {source} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    head = data[:HEAD]
    if b"\0" in head or len(head.translate(None, CONTROLS)) < 0.9 * len(head):
        raise TaskProblem(f"data: {source} is not text: it begins with {data[:16]!r}.")
    return data


def _unzipped(data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = [each for each in archive.infolist() if not each.is_dir()]
        if len(files) != 1:
            raise ValueError(f"the archive has {len(files)} files, but must have one")
        return archive.read(files[0])


HEAD = 4_096  # bytes that tell whether a file is text
CONTROLS = bytes(each for each in range(32) if each not in b"\t\n\r\f\x1b")
COMPRESSED: dict[bytes, Callable[[bytes], bytes]] = {  # how such a file begins, whatever its name is
    b"\x1f\x8b": gzip.decompress,
    b"BZh": bz2.decompress,
    b"\xfd7zXZ\0": lzma.decompress,
    b"PK\x03\x04": _unzipped,
}
MARKS = {  # byte order marks; that of UTF-16 begins that of UTF-32
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}


def _common(paths: Sequence[Path]) -> Path:
    """The deepest folder that all paths are in."""
    folders = [path.absolute().parent for path in paths]
    while len(set(folders)) > 1:
        deepest = max(len(folder.parts) for folder in folders)
        folders = [folder.parent if len(folder.parts) == deepest else folder for folder in folders]
    return folders[0] if folders else Path()


def _made(sources: Sources, level: str, rules: Rules) -> Text:
    files = _read(sources)
    arranged = parts.arrange(files, rules)
    return _encode(arranged, level, files)


def _hash(files: Sequence[File]) -> str:
    """The SHA-256 of all bytes, and of the parts that the files were given for, if any were."""
    found = hashlib.sha256()
    for each in files:
        found.update(each.data)
    given = [(each.part, len(each.data)) for each in files if each.part]
    if given:
        found.update(json.dumps(given).encode())
    return found.hexdigest()


def _encode(arranged: Arranged, level: str, files: Sequence[File]) -> Text:
    data, starts, bounds = arranged.data, arranged.starts, arranged.bounds
    facts = {"document": arranged.document, "left_out": arranged.left_out}
    made: dict[str, Any] = {"sha256": _hash(files), "names": arranged.names, "facts": facts}
    if level == "bytes":
        symbols, widths = np.frombuffer(data, np.uint8), np.ones(256, np.uint8)
        return Text(symbols, widths, starts=starts, bounds=bounds, **made)
    try:
        points = np.frombuffer(data.decode("utf-8").encode("utf-32-le"), np.uint32)
    except UnicodeDecodeError:
        raise TaskProblem(f"data: {_broken(files)}. Convert it, or use level: bytes.") from None
    alphabet, numbers = np.unique(points, return_inverse=True)
    widths = np.array([len(chr(point).encode()) for point in alphabet], np.uint8)
    if bounds is not None:
        low, high = documents.in_characters(data, np.array(bounds))
        bounds = int(low), int(high)
    symbols = numbers.astype(np.uint16 if len(alphabet) <= 2**16 else np.uint32)
    characters = "".join(map(chr, alphabet))
    starts = documents.in_characters(data, starts)
    return Text(symbols, widths, characters=characters, starts=starts, bounds=bounds, **made)


def _broken(files: Sequence[File]) -> str:
    """'FILE, byte N, is not UTF-8' for the first file that is not."""
    for each in files:
        try:
            each.data.decode("utf-8")
        except UnicodeDecodeError as error:
            return f"{each.name}, byte {error.start}, is not UTF-8 ({error.reason})"
    return "a file is not UTF-8"


def _key(sources: Sources, level: str, rules: Rules) -> str:
    """A hash of everything that the prepared data depends on: if a file changes, the key changes."""
    marks = [
        (part, *corpus.mark(each))
        if isinstance(each, str)
        else (part, str(each.absolute()), each.stat().st_size, each.stat().st_mtime_ns)
        for part, each in sources
    ]
    return hashlib.sha256(json.dumps([level, asdict(rules), marks]).encode()).hexdigest()[:16]


def _save(text: Text, folder: Path) -> None:
    np.save(folder / "symbols.npy", text.symbols)
    np.save(folder / "widths.npy", text.widths)
    np.save(folder / "starts.npy", text.starts)
    (folder / "sha256").write_text(text.sha256)
    about = {"names": text.names, "bounds": text.bounds, "facts": dict(text.facts)}
    (folder / "about.json").write_text(json.dumps(about))
    if text.characters is not None:
        (folder / "characters").write_bytes(text.characters.encode("utf-8"))  # no newline of it may be translated


def _open(folder: Path) -> Text:
    symbols = np.load(folder / "symbols.npy", mmap_mode="r")
    alphabet = folder / "characters"
    about = json.loads((folder / "about.json").read_text())
    return Text(
        symbols,
        np.load(folder / "widths.npy"),
        (folder / "sha256").read_text(),
        alphabet.read_bytes().decode("utf-8") if alphabet.exists() else None,
        np.load(folder / "starts.npy"),
        tuple(about["names"]),
        None if about["bounds"] is None else tuple(about["bounds"]),
        about["facts"],
    )
