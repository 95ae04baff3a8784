"""The search that is disturbed: its file, its undisturbed twin, and the differences between their records."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from nas.config import searchfile
from nas.engine import launch
from nas.engine.replay import replay
from nas.store import Store, Study, TrialState, UnitState, open_store

TASK = '''
"""Remember the first token of a sequence: a few steps take a tenth of a second."""

import torch
from torch.nn import functional as F

from nas.tasks import Task


class First(Task):
    batch, length, evaluation_batches = 8, 12, 2

    def requires(self):
        return {"kind": "decoder", "vocabulary": 8}

    def draw(self, split, seed, index):
        number = 1_000_003 * seed + 2 * index + (split != "train")
        tokens = torch.randint(8, (self.batch, self.length), generator=torch.Generator().manual_seed(number))
        return tokens, tokens[:, :1].expand(-1, self.length)

    def loss(self, model, batch, context):
        tokens, target = batch
        return F.cross_entropy(model(tokens, context).flatten(0, 1), target.flatten())
'''
SEARCH = """
study: {study}
space:
  kind: decoder
  width: !choice [16, 24, 32]
  vocabulary: 8
  body:
    repeat:
      times: !int [1, 3]
      of:
        - residual:
            norm: rms_norm
            of: !choice [attention: {{heads: !choice [1, 2]}}, convolution: {{kernel: !int [2, 9]}}]
        - residual: {{norm: rms_norm, of: {{feed_forward: {{expand: !int [1, 4]}}}}}}
task: {folder}/task.py
objectives: [loss, parameters]
strategy: {strategy}
scheduler: {scheduler}
runner: {runner}
budget: {{trials: {trials}}}
limits: {{attempts: 1000}}
finals: {{top: 0}}
baselines: []
storage: {storage}
checkpoints: {checkpoints}
keep: all
seed: {seed}
"""
RANDOM = "random"
HERE = "{inline: {process: false}}"
FULL, HALVING = "{{full: {{steps: {}}}}}", "{{halving: {{rungs: [{}, {}, {}], factor: 2}}}}"


class Search:
    """One search, in its own folder.

    With full training the Pareto front must be that of the undisturbed search. With halving, the promoted trials depend
    on the order of results, so only the architectures and rung 0 must be the same. A strategy that learns proposes
    other trials if results arrive in another order. Then every proposal must follow from the log, see `nas replay`.
    """

    def __init__(
        self,
        folder: Path,
        number: int,
        *,
        trials: int,
        steps: int,
        storage: str | None,
        runner: str = HERE,
        strategy: str = RANDOM,
    ):
        """storage: a URL; None is a SQLite file in the folder. steps: of the first rung."""
        self.folder, self.number, self.trials = folder / f"search-{number}", number, trials
        self.folder.mkdir(exist_ok=True)  # it may be a separate disk
        self.strategy = strategy
        self.keeps_order = number % 2 == 0
        self._steps, self._twin = steps, folder / "twins" / f"{number % 4}-{trials}-{steps}"
        self._twin.mkdir(parents=True, exist_ok=True)
        for each in (self.folder, self._twin):
            (each / "task.py").write_text(TASK)
        self._calm = f"sqlite:///{self._twin / 'nas.db'}"
        self.storage = storage or f"sqlite:///{self.folder / 'nas.db'}"
        self.file = self._write(self.folder, f"disturbed-{number}", self.storage, runner)

    def _write(self, folder: Path, study: str, storage: str, runner: str) -> Path:
        steps, seed = self._steps, self.number % 4  # four seeds, so that few undisturbed searches are needed
        scheduler = FULL.format(steps) if self.keeps_order else HALVING.format(steps, 2 * steps, 4 * steps)
        text = SEARCH.format(
            study=study,
            folder=folder,
            scheduler=scheduler,
            strategy=self.strategy,
            runner=runner,
            trials=self.trials,
            storage=storage,
            checkpoints=folder / "checkpoints",
            seed=seed,
        )
        (file := folder / "search.yaml").write_text(text)
        return file

    def run_undisturbed(self) -> None:
        """Run the twin in this process. So its forks have all modules loaded, and start fast."""
        file = self._write(self._twin, "undisturbed", self._calm, HERE)
        launch.search(searchfile.load(file), quiet=True).close()

    def problems(self) -> list[str]:
        """The differences between the databases of the disturbed and the undisturbed search."""
        with open_store(self._calm) as calm, open_store(self.storage) as store:
            wanted, disturbed = calm.study("undisturbed").id, store.study(f"disturbed-{self.number}")
            study = disturbed.id
            found = _broken(store, study)
            if self.strategy != RANDOM:
                found += _unexplained(store, disturbed, self.trials)
                return [f"search {self.number}: {text}" for text in found]
            found += _differences(_recorded(calm, wanted), _recorded(store, study))
            if self.keeps_order and (front := _front(store, study)) != (expected := _front(calm, wanted)):
                found.append(f"the front is {front}, undisturbed {expected}")
        return [f"search {self.number}: {text}" for text in found]


def _recorded(store: Store, study: int) -> dict[int, tuple]:
    """The architecture and the rung 0 values of every trial: these do not depend on the order in which trials end."""
    return {
        trial.number: (
            trial.architecture_hash,
            tuple(sorted((store.units(study, trial.number)[0].values or {}).items())),
        )
        for trial in store.trials(study)
    }


def _front(store: Store, study: int) -> list[tuple[int, dict[str, Any]]]:
    return sorted((trial.number, dict(trial.values)) for trial in store.pareto(study))


def _differences(wanted: dict[int, tuple], found: dict[int, tuple]) -> list[str]:
    problems = [f"trial {number} is lost" for number in wanted.keys() - found.keys()]
    problems += [f"trial {number} is one too many" for number in found.keys() - wanted.keys()]
    return problems + [
        f"trial {number} gave {found[number]}, undisturbed {wanted[number]}"
        for number in wanted.keys() & found.keys()
        if wanted[number] != found[number]
    ]


def _unexplained(store: Store, study: Study, trials: int) -> list[str]:
    """Problems: a wrong number of trials, and trials that the strategy does not propose again from the log."""
    count, again = len(store.trials(study.id)), replay(store, study)
    problems = [f"{count} trials instead of {trials}"] if count != trials else []
    return problems if again.same else [*problems, again.as_text()]


def _broken(store: Store, study: int) -> list[str]:
    """Trials that did not end, were repeated or miscounted, and incomplete checkpoints."""
    problems, ended = [], []
    trials = store.trials(study)
    if len({trial.architecture_hash for trial in trials}) != len(trials):
        problems.append("an architecture was repeated")
    for trial in trials:
        if trial.state not in (TrialState.COMPLETE, TrialState.STOPPED):
            problems.append(f"trial {trial.number} is {trial.state}: {trial.error_kind} {trial.error_text}")
        for unit in store.units(study, trial.number):
            ended.append((trial.number, unit.rung))
            if unit.state is not UnitState.DONE:
                problems.append(f"trial {trial.number} rung {unit.rung} is {unit.state}")
            elif not _whole(unit.checkpoint_uri, unit.checkpoint_sha256):
                problems.append(f"the checkpoint of trial {trial.number} rung {unit.rung} is broken")
    counted = [(result.number, result.rung) for result in store.results_since(study)]
    if sorted(counted) != sorted(ended):
        problems.append(f"{len(counted)} results were counted of {len(ended)} units, or one was repeated")
    return problems


def _whole(uri: str | None, sha256: str | None) -> bool:
    path = Path((uri or "").removeprefix("file://"))
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256
