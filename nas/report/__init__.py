"""Reports about a study. They read only its database, and need no torch.

from nas import report
report.status(store, study)      the state of the study
report.results(store, study)     its trials; report.best and report.front: the best ones
report.curve(store, study, 3)    the training curve of trial 3
report.progress(store, study)    the units that run now: step, loss, tokens per second
report.changes(store, study)     what changed since an earlier call
report.header(store, study)      the head of its result: trials started, failures, seeds, what the budget cut off
report.ranking(store, study)     how well size, or a lower rung, predicts quality
report.controls(store, study)    whether the search was better than its control arms
report.eta(store, study)         when the search will end
report.verdict(store, study)     the result of its finals
"""

from __future__ import annotations

from nas.report.activity import Activity, UnitProgress, progress
from nas.report.control import Control, controls
from nas.report.finals import verdict
from nas.report.forecasts import Eta, eta
from nas.report.header import Header, header
from nas.report.overview import Status, status
from nas.report.ranking import Ranking, ranking
from nas.report.trials import Changes, best, best_and_front, changes, curve, front, results, row, story

__all__ = [
    "Activity",
    "Changes",
    "Control",
    "Eta",
    "Header",
    "Ranking",
    "Status",
    "UnitProgress",
    "best",
    "best_and_front",
    "changes",
    "controls",
    "curve",
    "eta",
    "front",
    "header",
    "progress",
    "ranking",
    "results",
    "row",
    "status",
    "story",
    "verdict",
]
