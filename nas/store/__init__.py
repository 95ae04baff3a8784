"""The study database: the single source of truth about a study.

Names are imported when they are first used: the plain records need no SQLAlchemy, which takes half a second to import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nas.store.endings import Ending
    from nas.store.opening import open_reader, open_store
    from nas.store.reading import Reader
    from nas.store.records import (
        FINAL,
        MAIN,
        PURPOSES,
        Mark,
        Measurement,
        Owner,
        Pace,
        Refusal,
        RungResult,
        SpaceVersion,
        StoredVerdict,
        Study,
        Trained,
        Trial,
        TrialAdded,
        TrialCount,
        TrialRefused,
        TrialState,
        Unit,
        UnitKind,
        UnitState,
    )
    from nas.store.store import Store

__all__ = [
    "FINAL",
    "MAIN",
    "PURPOSES",
    "Ending",
    "Mark",
    "Measurement",
    "Owner",
    "Pace",
    "Reader",
    "Refusal",
    "RungResult",
    "SpaceVersion",
    "Store",
    "StoredVerdict",
    "Study",
    "Trained",
    "Trial",
    "TrialAdded",
    "TrialCount",
    "TrialRefused",
    "TrialState",
    "Unit",
    "UnitKind",
    "UnitState",
    "open_reader",
    "open_store",
]

_ELSEWHERE = {"Ending": "endings", "Reader": "reading", "Store": "store"}
_ELSEWHERE |= dict.fromkeys(("open_reader", "open_store"), "opening")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ELSEWHERE.get(name, 'records')}"), name)


def __dir__() -> list[str]:
    return __all__
