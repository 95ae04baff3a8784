"""The databases that are shown, opened read-only, with one table of trials and one cache for each study.

All browsers share them. A study is read again only if it changed, and only what changed of its trials.
"""

from __future__ import annotations

import math
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from dashboards.analysis.tabulated import Tabulated, tabulated
from dashboards.server.parameters import NotFound
from nas import location
from nas.errors import NasError, StoreError
from nas.report.activity import Activity, UnitProgress, by_trial, progress
from nas.report.trials import UNENDED
from nas.store import FINAL, Mark, Reader, Study, open_reader
from nas.store.database.engine import file_of, parse
from searchspace.errors import SpaceError, nearest

LEAST, MOST, SHARE = 1.0, 30.0, 20  # after a reading of t seconds, wait 20 t, but from 1 to 30 s
LARGE = 20_000  # trials: reading more takes seconds
KEPT = 100  # pages and results in the cache of a study
WAIT = 5.0  # seconds for a lock on SQLite
CACHE_KIB = 4096  # of each of up to 15 connections
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
SUFFIXES = (".json", ".csv")
T = TypeVar("T")


class Source:
    """One database. `key` is its name in addresses. It is opened when it is first needed.

    root: the start of all addresses, see `Sources`.
    """

    def __init__(self, key: str, where: str, root: str = ""):
        self.key, self.where, self.root = key, where, root
        self.shown = location.shown(where)
        self._file = file_of(parse(where))
        self._reader: Reader | None = None
        self._opened: Any = None
        self._lock = threading.Lock()
        self._studies: dict[Any, StudyCache] = {}

    @property
    def reader(self) -> Reader:
        """The open database. A file that was replaced is opened again. Raises StoreError if it cannot be opened."""
        with self._lock:
            file = self._identity()
            if self._reader is not None and file != self._opened:
                self._reader.close()
                self._reader = None
                self._studies.clear()
            if self._reader is None:
                self._reader = open_reader(self.where, wait=WAIT, retry=WAIT, cache_kib=CACHE_KIB)
                self._opened = file
            return self._reader

    def _identity(self) -> tuple[int, int] | None:
        """A value that changes if another file takes the path of the database."""
        try:
            found = self._file.stat() if self._file is not None else None
        except OSError:
            return None
        return found and (found.st_dev, found.st_ino)

    def studies(self) -> list[StudyCache]:
        """The studies of this database. Raises StoreError."""
        return [self._cache(study) for study in self.reader.studies()]

    def study(self, slug: str) -> StudyCache:
        """The study with this name, or ~ID, in its address. Raises NotFound or StoreError."""
        reader = self.reader
        for known in list(self._studies.values()):
            if known.slug == slug and known.is_fresh:  # it was there a moment ago
                return known
        found = {slug_of(study): study for study in reader.studies()}
        if slug in found:
            return self._cache(found[slug])
        raise NotFound(f"The database {self.key} has no study named {slug[:100]!r}.{nearest(slug[:100], list(found))}")

    def close(self) -> None:
        """Close the database if it is open."""
        if self._reader is not None:
            self._reader.close()

    def _cache(self, study: Study) -> StudyCache:
        with self._lock:
            key = (study.id, study.name, study.created_at)  # a new study may get the number of one that was deleted
            if key not in self._studies:
                self._studies[key] = StudyCache(self, study)
            return self._studies[key]


class StudyCache:
    """The trials of a study, and what pages computed from them.

    version: grows whenever something changes, such as the step of a running unit. results: grows when a unit ends or a
    trial is added; most figures depend only on these.
    """

    def __init__(self, source: Source, study: Study):
        self.source, self.study = source, study
        self.version = self.results = 0
        self.slug = slug_of(study)
        self.address = f"{source.root}/studies/{source.key}/{self.slug}"
        self.units: list[UnitProgress] = []
        self._doing: dict[int, Activity] = {}
        self._table: Tabulated | None = None
        self._mark: Mark | None = None
        self._seen: Any = None
        self._of: Reader | None = None
        self._next_look = 0.0
        self._lock = threading.RLock()
        self._start = threading.Lock()
        self._reading: threading.Thread | None = None
        self._kept: OrderedDict[Any, tuple[Any, Any]] = OrderedDict()

    @property
    def reader(self) -> Reader:
        """The database of the study."""
        return self.source.reader

    @property
    def table(self) -> Tabulated:
        """The trials, as of the last reading. Raises StoreError."""
        self.look()
        assert self._table is not None
        return self._table

    @property
    def is_fast(self) -> bool:
        """Whether the trials were read, or are so few that reading them is fast. If not, a thread reads them."""
        if self._table is not None or self.reader.next_number(self.study.id) < LARGE:
            return True
        with self._start:
            if self._reading is None or not self._reading.is_alive():
                self._reading = threading.Thread(target=lambda: open_or_none(self.look), daemon=True)
                self._reading.start()
        return False

    def state_of(self, number: int, stored: str) -> str:
        """The state of a trial to show: the stored state, or the activity of a trial that has not ended."""
        return self._doing.get(number, Activity.PAUSED).value if stored in UNENDED else stored

    @property
    def is_fresh(self) -> bool:
        """Whether the last reading is so recent that the study is not read again yet."""
        return time.monotonic() < self._next_look

    def look(self) -> int:
        """Read what changed, unless `is_fresh`, and return the version. Raises StoreError."""
        with self._lock:
            if self.is_fresh:
                return self.version
            began = time.monotonic()
            reader = self.source.reader
            if reader is not self._of:  # the file was replaced, perhaps by an earlier copy
                self._of, self._table, self._mark, self._seen = reader, None, None, None
            found = [each for each in reader.studies() if each.id == self.study.id]
            if not found or found[0].created_at != self.study.created_at:
                raise StoreError(f"The study {self.study.name[:100]!r} is no longer in this database.")
            mark = reader.mark(self.study.id)
            units = progress(reader, self.study)
            # The verdict and the reason why the search ended are stored after the last unit.
            ended = reader.verdict(self.study.id)
            said = found[0], ended and ended.created_at
            numbers = reader.next_number(self.study.id), reader.next_number(self.study.id, FINAL)
            seen = (mark.sequence, numbers, [vars(unit) for unit in units], said)
            if seen != self._seen or self._table is None:
                self.study = found[0]
                self._table = tabulated(reader, self.study, self._table, self._mark)
                self.results += self._seen is None or seen[:2] != self._seen[:2]
                self._mark, self._seen, self.units = mark, seen, units
                self._doing = by_trial(units)
                self.version += 1
            now = time.monotonic()
            self._next_look = now + min(MOST, max(LEAST, SHARE * (now - began)))
            return self.version

    def remember(self, key: Any, compute: Callable[[], T], *, of: Any = None) -> T:
        """The result of `compute()`, computed again when `of` changes; None: `results`. Raises StoreError."""
        self.look()
        depends = self.results if of is None else of
        with self._lock:
            found = self._kept.get(key)
            if found is None or found[0] != depends:
                found = self._kept[key] = depends, compute()
            self._kept.move_to_end(key)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return found[1]

    @property
    def tenth(self) -> int:
        """Grows when about a tenth more units have ended: for computations that take long."""
        return round(math.log(max(1, self.study.sequence), 1.1))

    def forget(self, key: Any) -> None:
        """Remove an entry from the cache."""
        with self._lock:
            self._kept.pop(key, None)


class Sources:
    """All databases that the server shows."""

    def __init__(self, places: Sequence[str] | None = None, *, root: str = ""):
        """places: URLs or paths; None or an empty list shows those of `default_places`.

        root: the start of all addresses behind a proxy, such as /tessera.
        """
        self._places, self.root = list(places or []), root
        self._found: dict[str, Source] = {}
        self._lock = threading.Lock()

    def all(self) -> list[Source]:
        """The databases, with new files in runs/ if no places were given."""
        with self._lock:
            known = {source.where for source in self._found.values()}
            for place in self._places or default_places():
                if place not in known:
                    key = _key(place, self._found)
                    self._found[key] = Source(key, place, self.root)
            return list(self._found.values())

    def source(self, key: str) -> Source:
        """The database with this key. Raises NotFound."""
        found = {source.key: source for source in self.all()}
        if key not in found:
            raise NotFound(f"No database named {key[:100]!r} is shown here.{nearest(key[:100], list(found))}")
        return found[key]

    def study(self, key: str, slug: str) -> StudyCache:
        """A study of a database. Raises NotFound or StoreError."""
        return self.source(key).study(slug)

    def close(self) -> None:
        """Close all databases."""
        for source in self._found.values():
            source.close()


def default_places() -> list[str]:
    """$NAS_STORAGE, else every SQLite file in the default folder, and what the tuner keeps in the user's folder."""
    if named := os.environ.get(location.VARIABLE):
        return [named]
    return [str(path) for path in sorted(location.FOLDER.glob("*.db"))] + tuner_places()


def tuner_places() -> list[str]:
    """The database in which `nas tune` and tuned kernels keep results by default, if there is one."""
    try:
        file = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "tessera" / "measurements.db"
    except RuntimeError:  # there is no home directory
        return []
    return [str(file)] if file.is_file() else []


def slug_of(study: Study) -> str:
    """The name of a study in addresses: its own, or ~ID if that is too long or has special characters."""
    plain = PLAIN_NAME.fullmatch(study.name) and not study.name.endswith(SUFFIXES) and len(study.name) < 100
    return study.name if plain else f"~{study.id}"


def _key(place: str, taken: dict[str, Source]) -> str:
    """A short unique name for addresses, made from the name of the file or of the database."""
    name = Path(place.partition("?")[0]).stem if "://" not in place else place.rpartition("/")[2].partition("?")[0]
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", name.removesuffix(".db")).strip("-") or "database"
    key, count = name, 2
    while key in taken:
        key, count = f"{name}-{count}", count + 1
    return key


def open_or_none(work: Callable[[], T]) -> tuple[T | None, str]:
    """(the result, ""), or (None, the message) if `work` raises NasError or SpaceError."""
    try:
        return work(), ""
    except (NasError, SpaceError) as error:
        return None, str(error)
