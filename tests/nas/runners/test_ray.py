"""Units on a real Ray cluster of two nodes, in which things die."""

import ctypes
import os
import re
import signal
import time
from pathlib import Path

import pytest

ray = pytest.importorskip("ray")

from ray.cluster_utils import Cluster  # noqa: E402

from nas import doctor  # noqa: E402
from nas.config import searchfile  # noqa: E402
from nas.documents import Documents  # noqa: E402
from nas.engine import launch  # noqa: E402
from nas.errors import NasError  # noqa: E402
from nas.runners import _ray  # noqa: E402
from nas.runners._ray import RayRunner  # noqa: E402
from nas.runners.ray import RayOptions  # noqa: E402
from nas.store import TrialState, UnitKind  # noqa: E402
from nas.work import FailureKind, Outcome, Progress, Work  # noqa: E402

NODE = {"object_store_memory": 80 * 2**20, "include_log_monitor": False}  # no test reads logs
# A removed node is noticed after one second instead of 15. The cluster asks more often, and waits no less for answers.
NODE_DEATHS = {"health_check_period_ms": 300, "health_check_failure_threshold": 3}
# The warnings are Ray's own.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("bare_ray")]


@pytest.fixture(scope="module")
def cluster(bare_ray):
    head = {"num_cpus": 1, "_system_config": NODE_DEATHS, "include_dashboard": False, **NODE}
    made = Cluster(initialize_head=True, head_node_args=head)
    made.add_node(num_cpus=1, resources={"quiet": 1}, **NODE)
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    yield made
    ray.shutdown()
    made.shutdown()


class Shared(RayRunner):
    """A runner whose next units do something else: each runner starts a process for its board."""

    def __call__(self, run):
        self._run = run
        return self


@pytest.fixture(scope="module")
def runner(cluster):
    """`runner(run)`: a runner of two workers whose units do `run`. It is the same one for all tests."""
    made = Shared(RayOptions(workers=2, address=cluster.address))
    yield made
    made.close()
    assert ray.is_initialized()  # what was connected before stays so


def work(trial=0, **changes):
    plain = {"study": "s", "rung": 0, "architecture": "", "task": {}, "recipe": {}, "steps": 1, "horizon": 1, "seed": 0}
    return Work(trial=trial, **(plain | changes))


def gathered(runner, count, seconds=60):
    outcomes, end = [], time.monotonic() + seconds
    while len(outcomes) < count and time.monotonic() < end:
        outcomes += runner.wait(1)
    return {outcome.trial: outcome for outcome in outcomes}


def test_doctor_finds_the_cluster_that_this_process_is_part_of(cluster):
    ok, found = doctor.CHECKS["ray"]()

    assert ok and re.fullmatch(r"this process is part of a cluster of \d CPUs", found)


def await_file(path, seconds=60):
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, path
        time.sleep(0.02)
    return path.read_text()


def test_units_run_in_other_processes_and_say_how_far_they_are(runner, tmp_path):
    go = tmp_path / "go"

    def run(work, progress):
        progress(Progress(work.trial, 9, 1.5, 100.0))
        while not go.exists():
            time.sleep(0.05)
        documents = {"test": Documents("loss", ("a", "b"), [1.0, 2.0], [1.0, 1.0])}
        return Outcome(trial=work.trial, rung=work.rung, seconds=1.0, documents=documents, device=str(os.getpid()))

    two = runner(run)
    assert two.workers == 2 and two.capacity == 3
    assert two.wait(1) == []
    for trial in range(3):
        two.submit(work(trial))
    end = time.monotonic() + 60
    while len(two.progress()) < 2 and time.monotonic() < end:
        two.wait(0.2)
    assert sorted(two.progress()) == [(0, 0), (1, 0)] and two.progress()[1, 0].step == 1
    go.touch()
    outcomes = gathered(two, 3)
    assert sorted(outcomes) == [0, 1, 2] and str(os.getpid()) not in {each.device for each in outcomes.values()}
    assert all(each.documents["test"].values.tolist() == [1.0, 2.0] for each in outcomes.values())


def test_a_latency_is_measured_where_its_resource_is(cluster, runner):
    """Only the second node has the resource, and only one unit at a time holds it."""
    quiet = next(each["NodeID"] for each in ray.nodes() if "quiet" in each["Resources"])

    def run(work, progress):
        held = ray.get_runtime_context().get_assigned_resources().get("quiet", 0)
        return Outcome(
            trial=work.trial,
            rung=work.rung,
            kind=work.kind,
            seconds=0.0,
            device=ray.get_runtime_context().get_node_id(),
            metrics={"held": held},
        )

    two = runner(run)
    objective = {"latency": {"on": {"resources": {"quiet": 1}}, "name": "board_ms"}}
    for trial in range(4):
        two.submit(work(trial, kind="probe", probes=("loss", objective)))
    two.submit(work(4))
    outcomes = gathered(two, 5)
    assert {outcomes[trial].device for trial in range(4)} == {quiet}
    assert [outcomes[trial].metrics["held"] for trial in range(5)] == [1, 1, 1, 1, 0]


def test_whatever_a_unit_raises_is_a_typed_failure(runner):
    def run(work, progress):
        if work.trial == 0:
            raise ZeroDivisionError("in the task")
        if work.trial == 1:
            raise MemoryError("too much")
        if work.trial == 2:
            raise SystemExit(3)
        if work.trial == 3:
            raise KeyboardInterrupt
        if work.trial == 4:
            raise GeneratorExit
        os._exit(1)

    one = runner(run)
    for trial in range(6):
        one.submit(work(trial))
    outcomes = gathered(one, 6)
    kinds = [outcomes[trial].failure.kind for trial in range(6)]
    assert kinds == [
        FailureKind.TASK_ERROR,
        FailureKind.OUT_OF_MEMORY,
        FailureKind.TASK_ERROR,
        FailureKind.WORKER_LOST,
        FailureKind.TASK_ERROR,
        FailureKind.WORKER_LOST,
    ]
    assert "ZeroDivisionError: in the task" in outcomes[0].failure.message


def test_a_worker_that_is_told_to_end_saves_its_unit_and_is_lost(runner, tmp_path):
    def run(work, progress):
        os.kill(os.getpid(), signal.SIGTERM)
        steps = 3  # the step in which the signal came is done
        try:
            progress(Progress(steps, 9, 1.5, 100.0))
        except KeyboardInterrupt:
            (tmp_path / f"saved{work.trial}").write_text(str(steps))
            if work.trial == 1:
                raise RuntimeError("a task that turns the interrupt into another exception") from None
            raise

    one = runner(run)
    one.submit(work(0))
    one.submit(work(1))
    outcomes = gathered(one, 2)
    assert [outcomes[trial].failure.kind for trial in (0, 1)] == [FailureKind.WORKER_LOST] * 2
    assert [(tmp_path / f"saved{trial}").read_text() for trial in (0, 1)] == ["3", "3"]


def test_a_unit_that_does_not_notice_its_time_limit_is_ended(runner, monkeypatch):
    monkeypatch.setattr(_ray, "LATE_SECONDS", 0.2)

    def run(work, progress):
        ctypes.PyDLL(None).sleep(300)  # which keeps the interpreter's lock

    one = runner(run)
    one.submit(work(seconds=0.1))
    failure = gathered(one, 1)[0].failure
    assert failure.kind is FailureKind.TOO_SLOW and "limit of 0.1 seconds" in failure.message


def test_a_time_limit_holds_when_the_actor_that_counts_the_seconds_was_lost(runner, tmp_path, monkeypatch):
    monkeypatch.setattr(_ray, "LATE_SECONDS", 0.2)
    monkeypatch.setattr(_ray, "HEAR_SECONDS", 0.05)

    def run(work, progress):
        ctypes.PyDLL(None).sleep(300)

    one = runner(run)
    one.submit(work(seconds=0.1))
    (submitted,) = one._running.values()
    while submitted.number not in one._hear().running:  # units of earlier tests may still be there
        time.sleep(0.05)
    ray.kill(one._board, no_restart=False)
    assert gathered(one, 1)[0].failure.kind is FailureKind.TOO_SLOW


def test_what_no_unit_is_to_blame_for_ends_the_search(runner):
    def run(work, progress):
        raise NasError("The disk is full.")

    one = runner(run)
    one.submit(work())
    with pytest.raises(NasError, match="The disk is full"):
        gathered(one, 1)


def test_an_interrupt_reaches_the_units_and_takes_along_what_is_done(cluster, tmp_path):
    def run(work, progress):
        try:
            (tmp_path / f"began{work.trial}").touch()
            for step in range(600 if work.trial else 0):
                time.sleep(0.1)
                progress(Progress(step, 600, 1.5, 100.0))
        except KeyboardInterrupt:
            (tmp_path / "saved").write_text(str(work.trial))
            raise
        return Outcome(trial=work.trial, rung=0, seconds=1.0)

    two = RayRunner(RayOptions(workers=2, address=cluster.address), run)  # its own: an interrupted runner ends
    two.submit(work(0))
    two.submit(work(1))
    await_file(tmp_path / "began1")
    assert [outcome.trial for outcome in two.interrupt(60)] in ([0], [])  # it returns when the units have ended
    assert await_file(tmp_path / "saved") == "1"
    two.close()


def test_a_unit_that_no_node_can_hold_is_refused(cluster):
    with pytest.raises(NasError, match="it needs CPU 2; the nodes have up to CPU 1"):
        RayRunner(RayOptions(cpus=2))
    with pytest.raises(NasError, match=r"GPU 0\.5"):
        RayRunner(RayOptions(gpus=0.5))


def test_a_cluster_decides_how_many_run_unless_it_is_told(cluster):
    for options, workers, capacity in (({}, 2, 3), ({"workers": 1}, 1, 1), ({"cpus": 0.5}, 4, 5)):
        made = RayRunner(RayOptions(**options))
        assert (made.workers, made.capacity) == (workers, capacity)
        made.close()


def test_a_closed_runner_does_not_wake_ray_again(cluster):
    made = RayRunner(RayOptions(workers=1))
    made.close()
    made._board = None  # asking it would start a new Ray, if this one had been the runner's own
    assert made.progress() == {}


OWN_TASK = """
import torch
from torch.nn import functional as F
from nas.tasks import Task

class First(Task):
    batch, length, evaluation_batches = 2, 8, 1
    def requires(self):
        return {"kind": "decoder", "vocabulary": 8}
    def draw(self, split, seed, index):
        return torch.randint(8, (2, 8), generator=torch.Generator().manual_seed(index))
    def loss(self, model, batch, context):
        return F.cross_entropy(model(batch, context).flatten(0, 1), batch.flatten())
"""
SEARCH = """
study: own
space: {{kind: decoder, width: !choice [8, 16], vocabulary: 8, body: !choice [attention, feed_forward]}}
task: mine.py
objectives: [loss]
strategy: random
scheduler: {{halving: {{rungs: [1, 2], factor: 2}}}}
runner: {{ray: {{workers: 1, address: "{address}"}}}}
budget: {{trials: 4}}
storage: sqlite:///{folder}/own.db
checkpoints: {folder}/checkpoints
"""


def test_the_users_own_task_is_trained_on_workers_without_its_file(cluster, tmp_path):
    (tmp_path / "mine.py").write_text(OWN_TASK)
    config = searchfile.parse(SEARCH.format(address=cluster.address, folder=tmp_path), folder=tmp_path)
    (tmp_path / "mine.py").unlink()
    result = launch.search(config, quiet=True)
    trials = result.store.trials(result.study.id)
    kept = [result.store.units(result.study.id, trial.number)[-1].checkpoint_uri for trial in trials]
    result.store.close()
    assert {trial.state for trial in trials} == {TrialState.COMPLETE, TrialState.STOPPED}
    assert max(trial.rung for trial in trials) == 1 and all(Path(uri).is_file() for uri in kept)


def test_a_probe_runs_on_a_worker_before_the_training(cluster, tmp_path):
    record = f"import os; open({str(tmp_path / 'pids')!r}, 'a').write(f'{{os.getpid()}} ')"
    (tmp_path / "mine.py").write_text(
        OWN_TASK.replace("        return F.cross", f"        {record}\n        return F.cross")
    )
    text = SEARCH.replace("[loss]", "[loss, gradient_norm]").replace("trials: 4", "trials: 1")
    config = searchfile.parse(text.format(address=cluster.address, folder=tmp_path), folder=tmp_path)
    (tmp_path / "pids").unlink(missing_ok=True)  # the reader draws a batch too
    with launch.search(config, quiet=True) as result:
        (trial,) = result.store.trials(result.study.id)
        units = result.store.units(result.study.id, 0)
    assert [unit.kind for unit in units][:2] == [UnitKind.PROBE, UnitKind.TRAIN]
    assert units[0].values == {"gradient_norm": trial.values["gradient_norm"]} and trial.values["gradient_norm"] > 0
    assert str(os.getpid()) not in (tmp_path / "pids").read_text().split()


def test_the_search_survives_killed_workers_and_a_removed_node(cluster, describe, tmp_path):
    # The last test of this file, because the node stays away. `run` names no function of this file: each worker would
    # import the file, and torch with it.
    second = next(iter(cluster.worker_nodes))
    doomed = second.node_id

    def run(work, progress):
        mark = tmp_path / f"trial-{work.trial}"
        if work.trial in (1, 4) and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if work.trial > 4 and ray.get_runtime_context().get_node_id() == doomed:
            (tmp_path / "there").write_text(str(work.trial))
            time.sleep(300)
        while work.trial > 4 and not (tmp_path / "there").exists():  # or this node would take all units
            time.sleep(0.02)
        return Outcome(trial=work.trial, rung=0, seconds=1.0, metrics={"loss": float(len(work.architecture))})

    class Removing(RayRunner):
        """Removes the second node as soon as a unit runs there that would not end."""

        def wait(self, timeout):
            if (tmp_path / "there").exists() and second in cluster.worker_nodes:
                cluster.remove_node(second, allow_graceful=False)
            return super().wait(timeout)

    runner = Removing(RayOptions(workers=2, address=cluster.address), run=run)
    result = launch.search(describe(budget="{trials: 14}"), quiet=True, runner=runner)
    trials = result.store.trials(result.study.id)
    attempts = [result.store.units(result.study.id, trial.number)[0].attempt for trial in trials]
    result.store.close()
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 14
    assert attempts[1] >= 2 and attempts[4] >= 2 and attempts[int((tmp_path / "there").read_text())] >= 2
