"""Results in a folder, where every key of a kernel has its own files.

A key is a problem on a device. Its new rows are lines of JSON in `OPERATION/KEY.jsonl`, one appended for each
measurement. After a search they are packed into `OPERATION/KEY.packed2`, about a kilobyte. So a call reads the rows of
its own key, however many others there are. Files of earlier versions are read too: `KEY.packed` until the key is packed
again, and `OPERATION.jsonl`, one file for an operation.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from kernels.dispatch import limits
from nas.files import write_whole
from tuner.device import Device
from tuner.locks import holding
from tuner.measure import resources
from tuner.measure.measure import timing
from tuner.search.row import EVERY, Described, Row, schema_of, written

LINES, PACKED, PACKING = ".jsonl", ".packed2", ".packing.jsonl"
FORMER = ".packed"  # of earlier versions, which would replace a file that they cannot read
PATIENCE = 2.0  # seconds to wait for another process that packs
DIGITS = 4  # of a packed sample
KEPT = 3  # samples of a packed row that was not compared in turns: both ends of its interval, and the median
FORMAT = 1
# What packed rows have in common: it saves a fifth of a kilobyte. Never change it, or packed files cannot be read.
COMMON = (
    b'"checked on 2 sets of inputs: , the reference, against triton num_stages=3 num_warps=4","quick/full/",'
    b'[0,1,2,3,4,4,4,[16,0.05]],[255,0,49152,8,"triton","float32","bfloat16","torch","sizes":[["rows","columns"'
    b'"{\\"device\\":\\"cuda\\",\\"flags\\":[[\\"gradients\\",true]],\\"sizes\\":[[\\"size\\",'
    b'"names":["BLOCK","num_ctas","num_stages","num_warps"],"texts":["resources":"rows":'
    b'{"format":1,"operation":"","device":{"key":"","kind":"cuda","name":"NVIDIA ","capability":"9.0","units":132,'
    b'"memory_bytes":"features":"driver":"","torch":"2.13.0+cpu","triton":"3.7.1"},"names":["BLOCK"'
)
_TEXTS = ("problem", "dtype", "implementation", "source", "failure", "message", "turns")


class Folder:
    """Rows of each operation and key. A row that was cut short or damaged is left out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._devices: dict[str, Mapping[str, Any]] = {}

    def rows(self, operation: str, problem: str | None = None) -> list[Row]:
        """The rows of an operation on all devices; of one problem if it is given. Those of a key are in order."""
        found = list(self._of_lines(self._whole(operation), problem))
        for file in self._files(operation, problem):
            found += (row for row in self._of_key(file) if problem is None or row.problem in (problem, EVERY))
        return found

    def every_row(self) -> list[Row]:
        """The rows of all operations."""
        return [row for file in self.files() for row in self.rows_in(file)]

    def files(self) -> list[Path]:
        """All files with rows, those of a key in the order of their rows."""
        folders = sorted(each for each in self.path.glob("*") if each.is_dir())
        return [*sorted(self.path.glob(f"*{LINES}")), *(file for folder in folders for file in self._in(folder))]

    def rows_in(self, file: Path) -> list[Row]:
        """The rows of one of these files."""
        return list(self._of_lines(file)) if file.parent == self.path else self._of_key(file)

    def add(self, device: Described, rows: Sequence[Row]) -> None:
        """Append rows. A row for every problem is appended to the files of all keys of the device."""
        self.path.mkdir(parents=True, exist_ok=True)
        by_file: dict[Path, list[str]] = {}
        for row in rows:
            line = json.dumps({**written(row), "device": device.to_dict()}, separators=(",", ":"))
            for file in self._files_of(row, device):
                by_file.setdefault(file, []).append(line)
        for file, lines in by_file.items():
            _append(file, lines)

    def pack(self, operation: str, problem: str, device: Device) -> None:
        """Put the rows of a key into one small file."""
        stem = self._key_folder(operation) / _stem(problem, device)
        places = (stem.with_name(stem.name + each) for each in (LINES, PACKING, PACKED, FORMER))
        lines, packing, packed, former = places
        if not lines.exists():
            return
        with holding(stem.with_name(".lock"), PATIENCE) as waited:
            if waited is None or not lines.exists():  # another process holds it, or has just packed
                return
            if packing.exists():  # of a process that was killed
                _append(packing, [json.dumps(each) for each in _parsed(lines)])
                lines.unlink()
            else:
                lines.replace(packing)  # what others append from now on goes to a new file
            rows = [*self._or_aside(former), *self._or_aside(packed), *self._of_lines(packing)]
            write_whole(packed, _packed(_written(rows, device)))
            packing.unlink()
            former.unlink(missing_ok=True)

    def devices(self) -> Mapping[str, Mapping[str, Any]]:
        """The fingerprint of every device that rows were read of, by its key."""
        return self._devices

    def _files_of(self, row: Row, device: Described) -> list[Path]:
        """The files that a new row is appended to."""
        if row.problem != EVERY:
            folder = self._key_folder(row.operation)
            folder.mkdir(exist_ok=True)
            return [folder / f"{_stem(row.problem, device)}{LINES}"]
        known = {file.name.partition(".")[0] for file in self._files(row.operation)}
        some = sorted(stem for stem in known if stem.endswith(f"-{device.key}"))
        return [
            self._whole(row.operation),
            *(self._key_folder(row.operation) / f"{stem}{LINES}" for stem in some),
        ]

    def _files(self, operation: str, problem: str | None = None) -> list[Path]:
        """The files of all keys, or of one problem on all devices: of a key first the packed rows, then newer ones."""
        return self._in(self._key_folder(operation), "" if problem is None else f"{_hash(problem)}-")

    def _in(self, folder: Path, wanted: str = "") -> list[Path]:
        with suppress(FileNotFoundError), os.scandir(folder) as entries:
            some = [each for each in entries if each.name.startswith(wanted) and not each.name.startswith(".")]
            names = [each.name for each in some if each.is_file()]  # a pipe would be waited for
            order = {FORMER: 0, PACKED: 1, PACKING: 2, LINES: 3}
            known = [(name.partition(".")[0], order.get(f".{name.partition('.')[2]}"), name) for name in names]
            return [folder / name for _, rank, name in sorted(known, key=str) if rank is not None]
        return []

    def _of_key(self, file: Path) -> list[Row]:
        """The rows of a file of one key. A row for every problem is there for this key, and says so."""
        rows = list(self._of_packed(file) if file.suffix in (FORMER, PACKED) else self._of_lines(file))
        own = next((row for row in rows if row.problem != EVERY), None)
        if own is None:
            return rows
        return [replace(row, problem=own.problem, dtype=own.dtype) if row.problem == EVERY else row for row in rows]

    def _of_lines(self, file: Path, problem: str | None = None) -> Iterator[Row]:
        for line in _parsed(file):
            with suppress(ValueError, KeyError, TypeError):
                limits.check(line, {name: check for name, check in schema_of(line).items() if name in line}, "a row")
                limits.check(device := line.pop("device"), {"key": limits.text}, "a device")
                if problem is None or line["problem"] in (problem, EVERY):
                    yield Row(**{name: line[name] for name in _NAMES if name in line}, device=device["key"])
                    self._devices[device["key"]] = device

    def _of_packed(self, file: Path) -> Iterator[Row]:
        with suppress(FileNotFoundError, ValueError, KeyError, TypeError, IndexError, zlib.error):
            data = limits.loads(_unpacked(file).decode())
            limits.check(device := data["device"], {"key": limits.text}, "a device")
            for row in _rows(data):
                limits.check(known := written(row), schema_of(known), "a row")
                yield replace(row, device=device["key"])
                self._devices[device["key"]] = device

    def _or_aside(self, file: Path) -> list[Row]:
        """The rows of a packed file. One that cannot be read, such as that of a later version, is kept as `.unread`."""
        rows = list(self._of_packed(file))
        if not rows and file.exists():
            file.replace(file.with_name(f"{file.name}.unread"))
        return rows

    def _whole(self, operation: str) -> Path:
        return self.path / f"{_name(operation)}{LINES}"

    def _key_folder(self, operation: str) -> Path:
        return self.path / _name(operation)


_NAMES = [each.name for each in fields(Row) if each.name != "device"]


def _name(operation: str) -> str:
    plain = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in operation)[-180:]
    return plain.lstrip(".") or "-"  # no hidden folder, and none outside


def _hash(problem: str) -> str:
    return hashlib.sha256(problem.encode()).hexdigest()[:16]


def _stem(problem: str, device: Described) -> str:
    return f"{_hash(problem)}-{device.key}"


def _append(file: Path, lines: Sequence[str]) -> None:
    """One write, with a newline before each row: a row that another process left half-written spoils no other.

    If another process packs the file meanwhile, it may have missed the rows, and they are written again.
    """
    text = "".join(f"\n{line}" for line in lines).encode()
    is_there = False
    while not is_there:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(handle, text)
            with suppress(FileNotFoundError):
                is_there = os.path.samestat(os.fstat(handle), file.stat())
        finally:
            os.close(handle)


def _parsed(file: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file that are JSON objects; a line that is too long is left out."""
    with suppress(FileNotFoundError), file.open("rb") as opened:
        is_whole = True
        while line := opened.readline(limits.MOST_LINE):
            if is_whole and (len(line) < limits.MOST_LINE or line.endswith(b"\n")):
                with suppress(ValueError):
                    if isinstance(data := limits.loads(line.decode("utf-8", errors="replace")), dict):
                        yield data
            is_whole = line.endswith(b"\n")


def _packed(content: bytes) -> bytes:
    packer = zlib.compressobj(9, zdict=COMMON)
    return packer.compress(content) + packer.flush()


def _unpacked(file: Path) -> bytes:
    """The content of a packed file; those of earlier versions were packed without COMMON, and are read too."""
    with file.open("rb") as opened:
        content = opened.read(limits.MOST_BYTES)
    return zlib.decompressobj(zdict=COMMON).decompress(content, limits.MOST_BYTES)


def _written(rows: Sequence[Row], device: Device) -> bytes:
    """Rows as short JSON: each text once, and the names of the settings of the first configuration once."""
    names = next((list(json.loads(row.configuration)) for row in rows if row.configuration != "{}"), [])
    texts: dict[str | None, int] = {}

    def number(text: str | None) -> int:
        return texts.setdefault(text, len(texts))

    some = [
        [*(number(getattr(row, name)) for name in _TEXTS), _settings(row.configuration, names), _samples(row)]
        for row in rows
    ]
    operation = rows[0].operation if rows else ""
    whole = {"format": FORMAT, "operation": operation, "device": device.to_dict(), "names": names}
    if any(row.resources for row in rows):  # in columns, which take less space, and which earlier versions ignore
        whole["resources"] = [[(row.resources or {}).get(name) for row in rows] for name in resources.NAMES]
    return json.dumps({**whole, "texts": list(texts), "rows": some}, separators=(",", ":")).encode()


def _settings(configuration: str, names: Sequence[str]) -> Any:
    """The values of a configuration, or its text if its settings have other names."""
    known = json.loads(configuration)
    return list(known.values()) if list(known) == list(names) else configuration


def _samples(row: Row) -> list[float]:
    samples = row.samples
    if row.turns is None and len(samples) > KEPT:
        found = timing(samples)
        samples = found.low, found.median, found.high
    return [float(f"{each:.{DIGITS}g}") for each in samples]


def _rows(data: Mapping[str, Any]) -> Iterator[Row]:
    """The rows of packed data. Raises ValueError, LookupError or TypeError if they are damaged."""
    if data["format"] != FORMAT:
        raise ValueError("it is of another version")
    names, texts = data["names"], data["texts"]
    uses = zip(*data["resources"], strict=True) if "resources" in data else [()] * len(data["rows"])
    for (*numbers, settings, samples), use in zip(data["rows"], uses, strict=True):
        known = dict(zip(_TEXTS, (texts[number] for number in numbers), strict=True))
        if isinstance(settings, list):
            settings = json.dumps(dict(zip(names, settings, strict=True)), sort_keys=True, separators=(",", ":"))
        row = Row(operation=data["operation"], configuration=settings, samples=samples, **known, resources=_use(use))
        found = timing(samples) if samples else None
        yield replace(row, milliseconds=found.median, low=found.low, high=found.high) if found else row


def _use(values: Sequence[int | None]) -> resources.Resources | None:
    """Resources by name."""
    return {name: value for name, value in zip(resources.NAMES, values) if value is not None} or None
