"""The study database: the only truth about a study."""

from nas.store.endings import Ending
from nas.store.measurements import Measurement
from nas.store.records import (
    Owner,
    RankedTrial,
    Refusal,
    SpaceVersion,
    Study,
    Trial,
    TrialAdded,
    TrialCount,
    TrialRefused,
    TrialState,
    Unit,
    UnitResult,
    UnitState,
    UnitSummary,
)
from nas.store.store import Store, open_store

__all__ = [
    "Ending",
    "Measurement",
    "Owner",
    "RankedTrial",
    "Refusal",
    "SpaceVersion",
    "Store",
    "Study",
    "Trial",
    "TrialAdded",
    "TrialCount",
    "TrialRefused",
    "TrialState",
    "Unit",
    "UnitResult",
    "UnitState",
    "UnitSummary",
    "open_store",
]
