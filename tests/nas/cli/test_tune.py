"""nas tune: what it prints, writes, and answers to what it cannot do."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from kernels.dispatch import registry, tuned
from tuner.search.search import CUT

FAULTY = Path(__file__).resolve().parents[2] / "tuner" / "faulty_operation.py"
PROBLEMS = "- {operation: faulty, dtype: float32, sizes: {rows: 16}, flags: {gradients: true}}\n"


@pytest.fixture
def tuner(tmp_path, monkeypatch):
    """An empty folder, tables and measurements of its own, and nothing left registered."""
    registry.operations()
    monkeypatch.setattr(registry, "_operations", dict(registry._operations))
    monkeypatch.setenv(tuned.TABLES, str(tmp_path / "tables"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("problems.yaml").write_text(PROBLEMS)
    tuned.use("cpu", None)
    yield tmp_path
    tuned.use("cpu", None)
    sys.modules.pop(f"tuner_loaded_{FAULTY.stem}", None)


@pytest.fixture
def quick(monkeypatch):
    """Measured at once: the times are made up, what is wrong is wrong."""
    from tuner.measure.children import Children
    from tuner.outcome import Kind, Outcome

    speed = {"right": 2.0, "small": 1.0, "slow": 9.0}

    def run(self, job):
        names = [choice.implementation for choice in job.choices]
        return tuple(
            Outcome(Kind.TIMED, (speed[name],) * 7) if name in speed else Outcome(Kind.WRONG, message=name)
            for name in names
        )

    monkeypatch.setattr(Children, "run", run)


def tune(nas, *more):
    return nas("tune", "faulty", "--problems", "problems.yaml", "--load", FAULTY, "--threads", "1", *more)


def test_tuning_says_what_won_and_the_second_time_that_nothing_was_measured(nas, tuner, quick):
    first = tune(nas)
    assert first.code == 0
    assert "faster than the default, 2.00 times [2.00, 2.00]" in first.out
    assert "Estimated selection regret: 0.00%" in first.err
    assert "now serves 1 problem." in first.err
    second = tune(nas).err
    assert "Nothing was measured: all measurements were known" in second
    assert "More time: " not in second, "all configurations were measured"


def test_a_budget_that_ends_before_the_first_measurement_says_so(nas, tuner, quick):
    told = tune(nas, "--budget", "0s").err

    assert "the time ended before the first measurement" in told and "all measurements were known" not in told


def test_a_budget_that_ends_before_a_search_goes_on_says_so(nas, tuner, quick, monkeypatch):
    ended_early = property(lambda search: f"{CUT}/{search.candidates.signature}")
    monkeypatch.setattr("tuner.search.search.Search._mark", ended_early)
    tune(nas)

    told = tune(nas, "--budget", "0s").err

    assert "the time ended before the first measurement" in told and "all measurements were known" not in told

    told = tune(nas, "--budget", "0s", "--effort", "full").err
    assert "More time: the search of 1 problem has not ended; the same command continues it." in told


def test_without_effort_nothing_is_blamed_on_time(nas, tuner, quick):
    told = tune(nas, "--effort", "none").err

    assert "Nothing was measured: `--effort none` decides from known measurements." in told
    assert "Undecided: 1 problem; `--effort quick` measures them." in told


def test_what_is_known_is_measured_again_on_request(nas, tuner, quick):
    tune(nas)
    assert tune(nas, "--again", "--json").json()["measured"] > 0
    assert tune(nas, "--json").json()["measured"] == 0


def test_a_choice_is_verified_for_some_problems_with_the_files_that_the_table_remembers(nas, tuner, quick):
    tune(nas)
    Path("none.yaml").write_text("- {operation: faulty, dtype: float32, sizes: {rows: 99}, flags: {gradients: true}}")

    assert len(nas("tune", "verify", "faulty", "--problems", "problems.yaml", "--json").json()) == 1
    assert nas("tune", "verify", "faulty", "--problems", "none.yaml", "--json").json() == []
    assert "but none of these" in nas("tune", "verify", "faulty", "--problems", "none.yaml").err
    (table,) = Path("tables").rglob("*.json")
    assert json.loads(table.read_text())["load"] == [str(Path(FAULTY).resolve())]


def test_as_json_it_says_all_of_a_session(nas, tuner, quick):
    told = tune(nas, "--json").json()
    (decision,) = told["decisions"]

    assert (decision["choice"], decision["gain"]) == ("small block=8", 2.0)
    assert decision["failures"] == {"wrong": 11}
    assert (told["entries"], told["interrupted"], told["undecided"]) == (1, False, [])
    assert Path(told["table"]).is_file()


def test_what_serves_is_shown_and_explained_and_frozen(nas, tuner, quick):
    tune(nas)
    (row,) = nas("tune", "show", "--json").json()
    assert (row["choice"], row["problem"]) == ("small block=8", "rows=16 gradients=True")

    rows = nas("tune", "explain", "faulty", "--problems", "problems.yaml", "--threads", "1", "--json").json()
    assert (rows[0]["why"], rows[0]["choice"], rows[0]["serves"]) == ("exact", "small block=8", True)
    assert [row["milliseconds"] for row in rows[1:3]] == [1.0, 2.0]
    assert rows[-1]["why"].startswith("wrong: ")

    assert nas("tune", "lock", "lock.json", "--json").json() == {"file": "lock.json", "problems": 1}
    assert nas("tune", "verify", "--load", FAULTY, "--json").json()[0]["times_default"] == 0.5


@pytest.fixture
def now_wrong(quick, monkeypatch):
    """From now on `small` is wrong; `now_wrong(number)`: and the job of this number is interrupted."""
    from tuner.measure.children import Children
    from tuner.outcome import Kind, Outcome

    run, asked = Children.run, []

    def call(last=None):
        def wrong(self, job):
            asked.append(job)
            if len(asked) == last:
                raise KeyboardInterrupt
            outcomes = zip(job.choices, run(self, job), strict=True)
            failed = Outcome(Kind.WRONG, message="here")
            return tuple(failed if choice.implementation == "small" else each for choice, each in outcomes)

        monkeypatch.setattr(Children, "run", wrong)

    yield call
    monkeypatch.setattr(Children, "run", run)


VERIFY = ("tune", "verify", "--load", FAULTY, "--threads", "1")


def test_a_choice_that_is_found_wrong_does_not_serve_again_after_a_later_session(nas, tuner, quick, now_wrong):
    tune(nas)
    now_wrong()
    said = nas(*VERIFY)
    assert said.code == 1 and "1 choice gave wrong results here" in said.err and "The default serves." in said.err
    assert "1/1: faulty cpu float32 rows=16 gradients=True: small block=8: wrong: here" in said.err
    assert [row["choice"] for row in nas("tune", "show", "--json").json()] == ["right block=8"]
    assert nas(*VERIFY).code == 0
    (decision,) = tune(nas, "--json").json()["decisions"]
    assert decision["choice"] == "right block=8"


@pytest.mark.parametrize("is_choice", [False, True], ids=["of another choice", "that was tuned"])
def test_a_verification_says_that_a_default_is_wrong(nas, tuner, quick, now_wrong, monkeypatch, is_choice):
    from tuner.measure.children import Children
    from tuner.outcome import Kind, Outcome

    tune(nas)
    if is_choice:  # the default takes the place of a wrong choice
        now_wrong()
        nas(*VERIFY)
    monkeypatch.setattr(Children, "run", lambda self, job: (Outcome(Kind.WRONG, message="here"),) * len(job.choices))

    assert "The default of 1 problem is wrong here. It serves what is not tuned." in nas(*VERIFY).err


def test_an_interrupted_verification_keeps_what_it_found(nas, tuner, quick, now_wrong):
    Path("problems.yaml").write_text(PROBLEMS + PROBLEMS.replace("16", "64"))
    tune(nas)
    now_wrong(2)
    said = nas(*VERIFY, "--json")
    assert (said.code, [row["outcome"] for row in said.json()]) == (130, ["wrong"])
    assert [row["choice"] for row in nas("tune", "show", "--json").json()] == ["right block=8", "small block=8"]


def test_a_verification_that_is_interrupted_at_once_does_not_say_that_the_table_is_empty(nas, tuner, quick, now_wrong):
    tune(nas)
    now_wrong(1)
    said = nas(*VERIFY)
    assert said.code == 130 and "before the first choice was checked" in said.err and "none of these" not in said.err


def test_a_verification_says_that_a_lock_file_stays_as_it_is(nas, tuner, quick, now_wrong, monkeypatch):
    tune(nas)
    nas("tune", "lock", "lock.json")
    monkeypatch.setenv(tuned.LOCK, str(tuner / "lock.json"))
    tuned.use("cpu", None)
    now_wrong()
    said = nas(*VERIFY).err
    assert "lock.json still serves them." in said and "The default serves." not in said
    assert "unset $NAS_KERNEL_LOCK" in said


def test_a_verification_says_which_files_and_problems_are_not_there(nas, tuner, quick):
    tune(nas)
    Path("more.yaml").write_text(PROBLEMS + PROBLEMS.replace("16", "99"))
    assert "more.yaml: the table does not hold 1 problem of them." in nas(*VERIFY, "--problems", "more.yaml").err
    (table,) = Path("tables").rglob("[!.]*.json")
    table.write_text(table.read_text().replace(str(Path(FAULTY).resolve()), "/gone.py"))
    tuned.use("cpu", None)
    assert "/gone.py, which the table was made with, is not there" in nas("tune", "verify").err


@pytest.fixture
def anything(monkeypatch):
    """Whatever is asked for takes a millisecond."""
    from tuner.measure.children import Children
    from tuner.outcome import Kind, Outcome

    monkeypatch.setattr(Children, "run", lambda self, job: (Outcome(Kind.TIMED, (1.0,) * 7),) * len(job.choices))
    monkeypatch.setattr(Children, "_rate", lambda self, probe: 1e15)


def test_an_architecture_and_a_study_say_themselves_what_is_tuned(nas, tuner, anything, finished, tmp_path):
    told = ["--length", "8", "--batch", "3", "--threads", "1", "--json"]
    one = nas("tune", "rms_norm", "--architecture", "transformer:tiny", *told)
    other = nas("tune", "attention", "--architecture", "transformer:tiny", *told).json()
    assert {"batch=3"} == {row["problem"].split()[0] for row in other["decisions"]}
    assert one.json()["undecided"] == []

    shutil.copytree(finished.folder, tmp_path / "finished")
    stored = ["--study", "tiny", "--storage", tmp_path / "finished" / "runs" / "tiny.db", *told]
    studied = nas("tune", "attention", *stored).json()
    heads = {row["problem"].split()[1] for row in studied["decisions"]}
    assert heads & {"heads=2", "heads=4"}
    assert studied["measured"] > 0
    assert nas("tune", "attention", *stored).json()["measured"] == 0


def test_an_interrupt_keeps_what_was_measured_and_the_next_run_goes_on(nas, tuner, quick, monkeypatch):
    from tuner.measure.children import Children

    whole, asked = Children.run, []

    def interrupted(self, job):
        asked.append(job)
        if len(asked) == 5:
            raise KeyboardInterrupt
        return whole(self, job)

    monkeypatch.setattr(Children, "run", interrupted)
    first = tune(nas)
    assert first.code == 1
    assert "4 measurements" in first.err
    assert "the same command continues with them" in first.err
    again = tune(nas, "--json").json()
    assert (again["undecided"], len(again["decisions"])) == ([], 1)


def test_a_miss_says_why_and_a_lock_refuses_it_as_it_was_told(nas, tuner, quick, monkeypatch):
    tune(nas)
    far = tuner / "far.yaml"
    far.write_text(PROBLEMS.replace("16", "60") + PROBLEMS.replace("true", "false"))
    explain = ["tune", "explain", "faulty", "--problems", far, "--threads", "1", "--json"]
    whys = [row["why"] for row in nas(*explain).json()]
    assert whys == [
        "default: the nearest tuned problem, rows=16, differs by a factor of 3.75",
        "default: faulty was tuned for other dtypes or flags",
    ]

    nas("tune", "lock", "lock.json")
    monkeypatch.setenv(tuned.LOCK, str(tuner / "lock.json"))
    tuned.use("cpu", None)
    rows = nas(*explain).json()
    assert [(row["choice"], row["why"].split(":")[0]) for row in rows] == [(None, "refused")] * 2
    ended = nas("profile", "transformer:tiny", "--phase", "prefill", "--length", "8", "--threads", "1")
    assert (ended.code, ended.out) == (1, "")
    assert "says that a miss is an error" in ended.err


def test_measurements_are_exported_and_imported_once(nas, tuner, quick):
    tune(nas)
    count = nas("tune", "export", "all.db", "--json").json()["measurements"]
    assert count > 10
    assert nas("tune", "import", "all.db", "--storage", "other.db", "--json").json()["new"] == count
    assert nas("tune", "import", "all.db", "--storage", "other.db", "--json").json()["new"] == 0
    missing = nas("tune", "import", "nothing.db")
    assert (missing.code, missing.err.strip()) == (2, "error: There is no file nothing.db.")


def test_what_tuning_measures_is_where_kernels_of_the_users_own_keep_theirs(nas, tuner, quick, monkeypatch):
    from kernels.dispatch.device import fingerprint
    from nas.store.records import Measurement
    from tuner.search.results import results_at

    tune(nas)
    store = results_at()  # of `tuner.tune` and `tuner.listen`
    measured = store.rows("faulty")
    assert measured
    about = {"problem": "{}", "dtype": "float32", "implementation": "triton", "configuration": "{}", "source": "8ce8"}
    own = Measurement(operation="package.scale", milliseconds=0.5, samples=(0.5,), **about)
    store.add(fingerprint("cpu").to_dict(), [own])

    (tuner / "elsewhere").mkdir()
    monkeypatch.chdir(tuner / "elsewhere")
    assert nas("tune", "export", "all.db", "--json").json()["measurements"] == len(measured) + 1
    assert nas("tune", "export", "own.db", "package.scale", "--json").json()["measurements"] == 1
    turned = nas("tune", "export", "all", "own.db")
    assert turned.code == 2 and "There are no measurements of 'own.db'." in turned.err
    assert not Path("all").exists()
    assert nas("tune", "import", "all.db", "--json").json()["new"] == 0


def test_strategies_are_replayed_on_a_recorded_space(nas, tuner, shared_data):
    (file, *_) = sorted(shared_data("kernel_tuning").rglob("*.json.gz"))
    (row,) = nas("tune", "replay", file, "--strategy", "random", "--evaluations", "10", "--seeds", "2", "--json").json()
    assert row["strategy"] == "random"
    assert 0 < row["of_optimum"] <= 1


def test_the_problems_of_an_architecture_are_those_that_it_asks_for():
    from nas import tuning
    from searchspace import zoo

    asked = tuning.problems_of([zoo.load("transformer", "tiny")], "cuda", length=16, batch=2)
    assert all(problem.device == "cuda" for some in asked.values() for problem in some)
    assert {problem["batch"] for problem in asked["attention"]} == {2}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fualty"], "no operation is called 'fualty'. Did you mean 'faulty'"),
        (["faulty", "--effort", "huge"], "effort must be one of none, quick, full"),
        (["faulty", "--budget", "soon"], "--budget must be a time such as 90s, 10m or 2h"),
        (["faulty", "--budget", "inf"], "--budget must be a time such as 90s, 10m or 2h"),
        (["faulty", "--device", "tpu"], "device must be 'cpu', 'cuda' or 'cuda:N'"),
        (["faulty", "--problems", "problems.yaml", "--study", "x"], "Give only one of --problems"),
        (["faulty", "--problems", "nosuch.yaml"], "cannot be read as a list of problems"),
        (["faulty", "--load", "nosuch.py"], "is not a Python file that registers operations"),
        (["verify", "rms_nrm"], "no operation is called 'rms_nrm'. Did you mean 'rms_norm'?"),
        (["show", "rms_nrm"], "no operation is called 'rms_nrm'. Did you mean 'rms_norm'?"),
        (["lock", "lock.json", "--miss", "never"], "miss must be one of default, error"),
        (["replay", "problems.yaml"], "is not a recorded tuning space"),
    ],
)
def test_what_cannot_be_done_is_said(arguments, says, nas, tuner):
    if arguments[0] in ("faulty", "fualty") and "nosuch.py" not in arguments:
        arguments = [*arguments, "--load", FAULTY]
    ended = nas("tune", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert says in ended.err


@pytest.mark.usefixtures("measured_once")
def test_a_profile_says_which_table_and_choices_it_used(nas, tuner, quick):
    ended = nas("profile", "transformer:tiny", "--phase", "prefill", "--length", "8", "--threads", "1")
    assert "Table of tuned kernels: none; defaults are used" in ended.err
    assert "attention" in ended.err

    tune(nas)
    ended = nas("profile", "transformer:tiny", "--phase", "prefill", "--length", "8", "--threads", "1")
    assert f"Table of tuned kernels: {tuner / 'tables'}" in ended.err


def test_a_space_is_recorded_whole_and_replayed(nas, tuner, capsys):
    from tuner.replay.record import main

    Path("sizes.yaml").write_text(
        "[{operation: rms_norm, dtype: float32, sizes: {rows: 4, columns: 8}, flags: {gradients: false}}]"
    )
    assert main(["rms_norm", "--device", "cpu", "--problems", "sizes.yaml", "--samples", "2"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (len(told["whole"]), told["left"]) == (1, 0)
    (file,) = Path("records").iterdir()
    (row,) = nas("tune", "replay", file, "--strategy", "random", "--evaluations", "3", "--seeds", "2", "--json").json()
    assert 0 < row["of_optimum"] <= 1


def test_profile_says_how_many_steps_of_halting_it_timed(nas, tmp_path, monkeypatch, measured_once):
    monkeypatch.chdir(tmp_path)
    head, once = "kind: decoder\nwidth: 8\nvocabulary: 16\n", ("--phase", "prefill", "--length", "4")
    Path("halting.yaml").write_text(f"{head}body: {{halting: {{times: 3, of: {{feed_forward: {{expand: 1}}}}}}}}\n")
    Path("plain.yaml").write_text(f"{head}body: {{feed_forward: {{expand: 1}}}}\n")

    assert "The times are those of 3 of 3 steps of halting." in nas("profile", "halting.yaml", "--depth", 99, *once).err
    assert "--depth 2 changes nothing: no block" in nas("profile", "plain.yaml", "--depth", 2, *once).err
