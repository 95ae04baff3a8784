"""The databases that are shown, opened read-only, with one cached table of trials for each study.

All browsers share the table. It is read again only if the study changed. Reading takes at most one hundredth of the
time (see `budget`), and updating open pages takes less, so many viewers do not slow down a running search.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from dashboards.analysis.tabulated import Tabulated, tabulated
from dashboards.server.budget import LEAST_SECONDS, SHARE, Budget, first_version
from dashboards.server.overview import Overview
from dashboards.server.parameters import NotFound
from nas import location
from nas.errors import NasError, StoreError
from nas.report.activity import Activity, UnitProgress, by_trial, progress
from nas.report.trials import UNENDED
from nas.store import FINAL, Mark, Reader, Study, open_reader
from nas.store.database.engine import file_of, parse
from searchspace.errors import SpaceError, nearest

LONGEST = 60.0  # seconds between two readings, at most
LARGE = 20_000  # trials: reading more takes seconds
KEPT, KEPT_RESULTS = 64, 32  # pages (compressed) and results in the cache of a study
WAIT = 5.0  # seconds for a lock on SQLite
PATIENCE = 0.1  # seconds that the list of studies waits for a study
CACHE_KIB = 4096  # of each of up to 15 connections
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
PARTS = ".parts"
SUFFIXES = (".json", ".csv", ".events", PARTS)
T = TypeVar("T")


class Source:
    """One database. `key` is its name in addresses. It is opened when it is first needed."""

    def __init__(self, key: str, where: str):
        self.key, self.where = key, where
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
            if self._reader is not None and not self.is_same:
                self._reader.close()
                self._reader = None
                self._studies.clear()
            if self._reader is None:
                self._reader = open_reader(self.where, wait=WAIT, retry=WAIT, cache_kib=CACHE_KIB)
                self._opened = _identity(self._file)
            return self._reader

    @property
    def is_same(self) -> bool:
        """Whether the file is still the one that was opened."""
        return self._reader is not None and self._opened == _identity(self._file)

    def studies(self) -> list[StudyCache]:
        """The studies of this database. Raises StoreError."""
        return [self._cache(study) for study in self.reader.studies()]

    def study(self, slug: str) -> StudyCache:
        """The study with this name, or ~ID, in its address. Raises NotFound or StoreError."""
        known = self.known(slug)
        if known is not None and known.is_fresh and self.is_same:  # it was there a moment ago
            return known
        found = self.reader.studies()
        for study in found:
            if slug == slug_of(study):
                return self._cache(study)
        names = [slug_of(study) for study in found]
        raise NotFound(f"The database {self.key} has no study named {slug[:100]!r}.{nearest(slug[:100], names)}")

    def known(self, slug: str) -> StudyCache | None:
        """The study with this name in its address, if it was requested before."""
        return next((each for each in list(self._studies.values()) if each.slug == slug), None)

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
    """The cached data of one study.

    version: grows whenever something changes, such as the step of a running unit. results: grows when a unit ends or a
    trial is added; most figures depend only on these.
    """

    def __init__(self, source: Source, study: Study):
        self.source, self.study = source, study
        self.version = self.results = first_version()
        self.slug = slug_of(study)
        self.address = f"/studies/{source.key}/{self.slug}"
        self.units: list[UnitProgress] = []
        self._doing: dict[int, Activity] = {}
        self._table: Tabulated | None = None
        self._mark: Mark | None = None
        self._seen: Any = None
        self._of: Reader | None = None
        self._next_look = 0.0
        self.budget = Budget()
        self._lock = threading.RLock()
        # Separate caches: many pages, such as those of 64 trials, must not displace the results behind them.
        self._pages: OrderedDict[Any, tuple[Any, Any]] = OrderedDict()
        self._results: OrderedDict[Any, tuple[Any, Any]] = OrderedDict()
        self._grown: dict[Any, tuple[int, Any]] = {}
        self._slow = threading.Lock()
        self._slow_start = threading.Lock()
        self._prepared = False
        self._preparing: threading.Thread | None = None
        self._reading: threading.Thread | None = None
        self._seldom: dict[Any, tuple[int, int, Any]] = {}

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
                self._seldom.clear()
                self._grown.clear()
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
            spent = time.monotonic() - began
            self._next_look = time.monotonic() + min(LONGEST, max(LEAST_SECONDS, SHARE * spent))
            return self.version

    @contextmanager
    def free(self) -> Iterator[bool]:
        """Whether this study is idle. If so, no other thread computes for it until the end of the block."""
        is_free = self._lock.acquire(timeout=PATIENCE)
        try:
            yield is_free
        finally:
            if is_free:
                self._lock.release()

    def earlier(self, key: Any) -> Any:
        """The last cached page, possibly of an earlier version; None if there is none."""
        found = self._pages.get(key)
        return found and found[1]

    def of_results(self, key: Any, compute: Callable[[], T]) -> T:
        """The result of `compute()`, computed again only when `results` grows. Raises StoreError."""
        self.look()
        return self.remember(key, compute, of=self.results)

    def grown(self, key: Any, compute: Callable[[T | None], T]) -> T:
        """As `of_results`, but never evicted. `compute` gets the earlier result, or None the first time."""
        self.look()
        with self._lock:
            found = self._grown.get(key)
            if found is None or found[0] != self.results:
                self._grown[key] = found = self.results, compute(found[1] if found else None)
            return found[1]

    def remember(self, key: Any, compute: Callable[[], T], *, of: Any = None) -> T:
        """The result of `compute()`, computed again when `of` changes; None: when the version changes.

        Raises StoreError.
        """
        version = self.look()
        depends, kept, most = (version, self._pages, KEPT) if of is None else (of, self._results, KEPT_RESULTS)
        with self._lock:
            found = kept.get(key)
            if found is not None and found[0] == depends:
                kept.move_to_end(key)
                return found[1]
            made = compute()
            kept[key] = (depends, made)
            while len(kept) > most:
                kept.popitem(last=False)
            return made

    def recall(self, key: Any) -> Any:
        """The cached page, if it is of the current version and the study was read recently; else None."""
        found = self._pages.get(key)
        if found is None or not self.is_fresh or found[0] != self.version or not self.source.is_same:
            return None
        return found[1]

    @property
    def is_read(self) -> bool:
        """Whether the trials were read, or are so few that reading is fast. If not, see `read_soon`."""
        with self._slow_start:
            known = self._table is not None and self._reading is None
        return known or self.reader.next_number(self.study.id) < LARGE

    def read_soon(self, then: Callable[[], Any]) -> None:
        """Read the trials in a thread, unless one is reading them already. Then the thread calls `then`."""
        with self._slow_start:
            if self._reading is None:
                self._reading = threading.Thread(target=self._read, args=(then,), daemon=True)
                self._reading.start()

    def wait(self) -> None:
        """Wait until the trials are read. Raises StoreError."""
        if reading := self._reading:
            reading.join()
        self.look()

    def _read(self, then: Callable[[], Any]) -> None:
        with suppress(Exception):  # the next page says why it cannot be read
            self.look()
            then()
        self._reading = None

    def is_prepared(self, prepare: Callable[[], Any], then: Callable[[], Any]) -> bool:
        """Whether pages can be made without first reading many trials.

        If not, a thread calls `prepare` once, and then `then`. No page waits for `then`.
        """
        with self._slow_start:
            if not self._prepared and self._preparing is None:
                self._prepared = self.reader.next_number(self.study.id) < LARGE
                if not self._prepared:
                    self._preparing = threading.Thread(target=self._prepare, args=(prepare, then), daemon=True)
                    self._preparing.start()
            return self._prepared

    def _prepare(self, prepare: Callable[[], Any], then: Callable[[], Any]) -> None:
        try:
            prepare()
        finally:
            self._prepared = True  # the page itself reports what went wrong
        with suppress(Exception):  # a page that needs it says why it cannot be computed
            then()

    def forget(self, key: Any) -> None:
        """Remove a page from the cache."""
        with self._lock:
            self._pages.pop(key, None)

    def seldom(self, key: Any, compute: Callable[[], T]) -> T:
        """As `remember`, but computed again only when a tenth more units have ended: for slow computations."""
        version = self.look()
        with self._slow:
            found = self._seldom.get(key)
            if found is not None and (found[0] == version or self.study.sequence < 1.1 * found[1]):
                return found[2]
            made = compute()
            self._seldom[key] = (version, self.study.sequence, made)
            return made


class Sources:
    """All databases that the server shows."""

    def __init__(self, places: Sequence[str] | None = None, *, is_default: bool | None = None):
        """places: URLs or paths; None or an empty list shows $NAS_STORAGE, else every file in runs/.

        is_default: whether the user chose no databases, so that the default folder of the tuner is shown too. None:
        True if `places` is empty.
        """
        self._places = list(places or [])
        self.is_default = not places if is_default is None else is_default
        self._found: dict[str, Source] = {}
        self._lock = threading.Lock()
        self.overview = Overview(self.all)

    def all(self) -> list[Source]:
        """The databases, with new files in runs/ if no places were given."""
        with self._lock:
            known = {source.where for source in self._found.values()}
            for place in self._places or default_places():
                if place not in known:
                    key = _key(place, self._found)
                    self._found[key] = Source(key, place)
            return list(self._found.values())

    def source(self, key: str) -> Source:
        """The database with this key. Raises NotFound."""
        found = {source.key: source for source in self.all()}
        if key not in found:
            raise NotFound(f"No database named {key[:100]!r} is shown here.{nearest(key[:100], list(found))}")
        return found[key]

    def read(self) -> None:
        """Read all studies. Errors are ignored here: the pages report them."""
        for source in self.all():
            found, _ = open_or_none(source.studies)
            for study in found or ():
                open_or_none(study.wait)

    def study(self, key: str, slug: str) -> StudyCache:
        """A study of a database. Raises NotFound or StoreError."""
        return self.source(key).study(slug)

    def known(self, key: str, slug: str) -> StudyCache | None:
        """A study that was requested before; None if it was not."""
        source = self._found.get(key)
        return None if source is None else source.known(slug)

    def close(self) -> None:
        """Close all databases."""
        for source in self._found.values():
            source.close()


def default_places() -> list[str]:
    """$NAS_STORAGE, else every SQLite file in the default folder."""
    if named := os.environ.get(location.VARIABLE):
        return [named]
    return [str(path) for path in sorted(location.FOLDER.glob("*.db"))]


def slug_of(study: Study) -> str:
    """The name of a study in addresses: its own, or ~ID if that is too long or has special characters."""
    plain = PLAIN_NAME.fullmatch(study.name) and not study.name.endswith(SUFFIXES) and len(study.name) < 100
    return study.name if plain else f"~{study.id}"


def _identity(file: Path | None) -> tuple[int, int] | None:
    """A value that changes if another file takes this path. None: no file."""
    try:
        found = None if file is None else file.stat()
    except OSError:
        return None
    return None if found is None else (found.st_dev, found.st_ino)


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
