"""The study database: the single source of truth about a study.

Names are imported when they are first used: the plain records need no SQLAlchemy, which takes half a second to import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nas.store.endings import Ending as Ending
    from nas.store.opening import open_reader as open_reader
    from nas.store.opening import open_store as open_store
    from nas.store.reading import Reader as Reader
    from nas.store.records import FINAL as FINAL
    from nas.store.records import MAIN as MAIN
    from nas.store.records import PURPOSES as PURPOSES
    from nas.store.records import Mark as Mark
    from nas.store.records import Measurement as Measurement
    from nas.store.records import Owner as Owner
    from nas.store.records import Pace as Pace
    from nas.store.records import Refusal as Refusal
    from nas.store.records import RungResult as RungResult
    from nas.store.records import SpaceVersion as SpaceVersion
    from nas.store.records import StoredVerdict as StoredVerdict
    from nas.store.records import Study as Study
    from nas.store.records import Trained as Trained
    from nas.store.records import Trial as Trial
    from nas.store.records import TrialAdded as TrialAdded
    from nas.store.records import TrialCount as TrialCount
    from nas.store.records import TrialRefused as TrialRefused
    from nas.store.records import TrialState as TrialState
    from nas.store.records import Unit as Unit
    from nas.store.records import UnitKind as UnitKind
    from nas.store.records import UnitState as UnitState
    from nas.store.store import Store as Store

_ELSEWHERE = {"Ending": "endings", "Reader": "reading", "Store": "store"}
_ELSEWHERE |= dict.fromkeys(("open_reader", "open_store"), "opening")


def __getattr__(name: str) -> Any:
    return getattr(import_module(f"{__name__}.{_ELSEWHERE.get(name, 'records')}"), name)
