"""The benchmark of tuning strategies loses no run, and says of a run what happened in it."""

import json
import sys

import numpy as np
import pytest

from benchmarks.replay import __main__ as benchmark
from benchmarks.replay import peers, runs, validation
from benchmarks.replay.runs import Job, Result, Results, complete, result_of, run, version
from tuner.replay.recorded import Recorded, synthetic
from tuner.replay.replay import replay


@pytest.fixture
def spaces(monkeypatch):
    """Two kernels on two devices each, in place of the recorded ones."""
    made = {}
    for number, kernel in enumerate(("one", "two")):
        for device in ("A", "B"):
            like = synthetic(number)
            noise = np.exp(0.1 * np.random.default_rng(ord(device)).standard_normal(len(like.space)))
            times = like.times * noise
            made[f"{kernel}_{device}"] = Recorded(
                f"{kernel}_{device}", like.space, times, like.samples * noise[:, None], like.compile
            )
    for module in (benchmark, runs, peers, validation):
        monkeypatch.setattr(module, "spaces", lambda: made)
    return made


def test_a_killed_run_goes_on_where_it_was(spaces, tmp_path):
    path = tmp_path / "runs.jsonl"
    jobs = [Job("cold", "random", space, seed, 20) for seed in range(2) for space in spaces]
    first = complete(Results(path, version), jobs, processes=1)
    for _ in range(3):
        next(first)
    with path.open("a") as file:
        file.write('{"version": "cut sho')
    file = path.read_text()
    path.write_text(file + "\n")
    again = Results(path, version)
    assert len(list(complete(again, jobs, processes=1))) == len(jobs) - 3
    assert Results(path, version).known == again.known
    assert [again.known[job].job for job in jobs] == jobs


def test_runs_of_another_version_are_left_alone(spaces, tmp_path):
    path = tmp_path / "runs.jsonl"
    jobs = [Job("cold", "random", "one_A", 0, 10)]
    list(complete(Results(path, lambda job: "old"), jobs, processes=1))
    assert Results(path, version).known == {}
    assert len(list(complete(Results(path, version), jobs, processes=1))) == 1
    assert Results(path, lambda job: "old").known.keys() == Results(path, version).known.keys()


def test_the_version_is_that_of_the_strategy():
    jobs = [Job(mode, name, "one_A", 0, 10) for mode, name in [("cold", "surrogate"), ("warm", "surrogate")]]
    assert version(jobs[0]) != version(jobs[1])
    assert version(jobs[0]) == version(Job("noisy", "surrogate", "two_A", 3, 10))


def test_steps_are_where_the_fraction_of_the_optimum_rose(spaces):
    recorded = spaces["one_A"]
    done = replay(recorded, "random", 40, seed=1)
    result = result_of(Job("cold", "random", "one_A", 1, 40), recorded, done)
    for evaluations in (1, 7, 40):
        assert result.fraction(evaluations) == pytest.approx(recorded.best / done.best()[evaluations - 1])
    assert result.near() == min((at for at, value in result.steps if value >= 0.95), default=np.inf)


def test_a_warm_run_knows_the_other_devices_and_a_noisy_one_is_settled(spaces):
    warm = run(Job("warm", "surrogate", "one_A", 0, 3))
    assert warm.fraction(3) > 0.8
    noisy = run(Job("noisy", "random", "one_A", 0, 30))
    assert 1 <= noisy.regret <= noisy.served
    failing = [run(Job("failing", "random", "one_A", seed, 4, invalid=0.9)) for seed in range(3)]
    assert 0 in [each.fraction(4) for each in failing], "nothing ran"


def test_the_table_has_means_worst_spaces_and_scores(spaces, tmp_path):
    jobs = [Job("cold", "random", space, seed, 25) for seed in range(30) for space in spaces]
    results = Results(tmp_path / "runs.jsonl", version)
    list(complete(results, jobs, processes=1))
    rows = {row["of"]: row for row in benchmark.rows(results.known.values(), [8, 25], each=True)}
    each = [np.mean([results.known[job].fraction(25) for job in jobs if job.space == space]) for space in spaces]
    assert float(rows["mean"]["25"]) == pytest.approx(np.mean(each), abs=1e-4)
    assert float(rows["worst space"]["25"]) == pytest.approx(min(each), abs=1e-4)
    assert abs(float(rows["score"]["25"])) < 3 * float(rows["... its error"]["25"])
    assert rows["one"]["runs"] == 60


def test_a_strategy_that_plans_by_its_budget_is_judged_by_the_run_of_that_budget():
    runs = [
        Result(Job("cold", "x", "one_A", 0, most), ((1, value),), 0.0, 0.0) for most, value in [(8, 0.5), (25, 0.9)]
    ]
    assert [each.fraction(8) for each in benchmark._planned(runs, 8)] == [0.5]
    assert [each.fraction(16) for each in benchmark._planned(runs, 16)] == [0.9]


def test_settings_are_chosen_without_what_they_are_judged_on(spaces, tmp_path, monkeypatch):
    monkeypatch.setattr(validation, "GRID", {"initial": (6, 10)})
    monkeypatch.setattr(validation, "complete", lambda *_: iter(()))
    results = Results(tmp_path / "runs.jsonl", version)
    for name in spaces:  # 6 is better on kernel one, 10 on kernel two
        for setting in validation.grid():
            good = (dict(setting)["initial"] == 6) == name.startswith("one")
            job = Job("cold", "surrogate", name, 0, 25, setting)
            results.known[job] = Result(job, ((1, 0.9 if good else 0.4),), 0.0, 0.0)
    rows = validation.validate(results, [0], 25, 1)
    by_name = {row["left out"]: row for row in rows}
    assert by_name["kernel one"]["chosen"] == "initial=10"
    assert float(by_name["kernel one"]["25"]) == 0.4
    assert float(by_name["mean over spaces, their kernel left out"]["25"]) == 0.4


def test_what_kernel_tuner_answers_becomes_a_result(spaces, tmp_path, monkeypatch):
    worker = tmp_path / "worker.py"
    worker.write_text(
        "import json, sys\n"
        "asked = json.load(sys.stdin)\n"
        "for strategy, seed, most in asked['runs']:\n"
        "    print(json.dumps({'order': list(range(seed, seed + most)), 'seconds': 1.0, 'error': None}))\n"
    )
    monkeypatch.setattr(peers, "WORKER", worker)
    monkeypatch.setattr(peers, "_installed", lambda: sys.executable)
    monkeypatch.setattr(peers, "_simplified", lambda name: {})
    wanted = peers.jobs(["mls"], [3], [8, 25])
    results = Results(tmp_path / "runs.jsonl", lambda job: peers.PACKAGE)
    assert len(list(peers.complete(results, wanted))) == len(wanted) == 8
    times = spaces["one_B"].times[3:28]
    found = results.known[Job("cold", "kernel tuner: mls", "one_B", 3, 25)]
    assert found.fraction(25) == pytest.approx(spaces["one_B"].best / np.nanmin(times))
    assert json.loads((tmp_path / "runs.jsonl").read_text().splitlines()[0])["version"] == "kernel-tuner==1.5.0"
    assert list(peers.complete(results, wanted)) == []
