"""What serves a problem, and why: the tuned problem, a near one, the default, or what a lock file allows."""

import json
from dataclasses import replace

import pytest
import torch

from kernels.dispatch import table, tuned
from kernels.dispatch.device import fingerprint
from kernels.dispatch.registry import Choice, Implementation, Operation, Problem, _operations, register

HERE = {"device": fingerprint().to_dict(), "threads": torch.get_num_threads()}


def add(x, step):
    return x + step


def double(x):
    return 2 * x


@pytest.fixture
def stepping(monkeypatch, tmp_path):
    """An operation whose implementations give different results; nothing is tuned."""
    monkeypatch.setenv(tuned.TABLES, str(tmp_path))
    monkeypatch.delenv(tuned.LOCK, raising=False)
    implementations = {
        "adding": Implementation("adding", add, {"step": (1, 2, 3)}, default={"step": 1}),
        "doubling": Implementation("doubling", double, refuses=lambda p: "too long" if p["rows"] > 100 else None),
    }
    made = register(
        Operation(
            name="stepping",
            reference=double,
            implementations=implementations,
            inputs=lambda problem, seed: ((torch.ones(problem["rows"], problem["columns"]),), {}),
            problems=lambda device: {},
            default=lambda problem: "adding",
            sizes=("rows", "columns"),
            flags=("gradients",),
        )
    )
    tuned.use("cpu", None)
    yield made
    tuned.use("cpu", None)
    del _operations["stepping"]


def problem(rows=64, columns=8, gradients=False, dtype="float32"):
    sizes = (("rows", rows), ("columns", columns))
    return Problem("stepping", "cpu", dtype, sizes, (("gradients", gradients),))


def entry(operation, choice=None, milliseconds=1.0, **which):
    choice = choice or Choice.of("adding", {"step": 2})
    source = operation.implementations[choice.implementation].source
    return table.Entry(problem(**which), choice, milliseconds, source)


def run(operation, x, config=None):
    sizes = (x.numel() // x.shape[-1], x.shape[-1])
    return tuned.implementation(operation, x.device.type, x.dtype, sizes, (False,), config)(x)


def test_a_tuned_problem_is_served_exactly(stepping):
    found = table.Table([entry(stepping), entry(stepping, Choice.of("doubling"), rows=65)])
    served = found.serve(stepping, problem())
    assert (served.choice, served.why, served.milliseconds) == (Choice.of("adding", {"step": 2}), "exact", 1.0)
    assert found.serve(stepping, problem(65)).choice == Choice.of("doubling")


def test_the_nearest_within_the_bound_serves_what_was_not_tuned(stepping):
    near, far = entry(stepping, rows=60), entry(stepping, Choice.of("adding", {"step": 3}), rows=40)
    served = table.Table([far, near]).serve(stepping, problem(64))
    assert (served.choice, served.why, served.tuned) == (near.choice, "near", near.problem)


NEAR = [
    *(({"rows": rows}, "near") for rows in (32, 128)),  # the bound itself
    *(({"rows": rows}, "default") for rows in (31, 129)),
    *((which, "default") for which in ({"columns": 17}, {"gradients": True}, {"dtype": "bfloat16"})),
]


@pytest.mark.parametrize(("which", "why"), NEAR, ids=str)
def test_what_differs_by_more_than_a_factor_of_two_is_served_by_the_default(stepping, which, why):
    served = table.Table([entry(stepping, **which)]).serve(stepping, problem())
    assert (served.choice, served.why) == (Choice.of("adding", {"step": 1 + (why == "near")}), why)


def test_a_near_choice_that_cannot_run_the_problem_is_passed_over(stepping):
    first = entry(stepping, Choice.of("doubling"), rows=99)
    second = entry(stepping, Choice.of("adding", {"step": 3}), rows=80)
    served = table.Table([first, second]).serve(stepping, problem(101))
    assert (served.choice, served.why) == (second.choice, "near")


@pytest.mark.parametrize("choice", [Choice.of("gone"), Choice.of("adding", {"step": 9}), Choice.of("adding", {"x": 1})])
def test_a_choice_that_is_none_any_more_is_not_served(stepping, choice):
    found = table.Table([table.Entry(problem(), choice, 1.0, "")])
    assert found.serve(stepping, problem()).why == "default"


def test_a_measurement_of_another_source_is_not_served(stepping):
    stale = replace(entry(stepping), source="another")
    assert table.Table([stale]).serve(stepping, problem()).why == "default"
    with pytest.raises(table.LockedMiss, match="stepping has changed since adding was measured"):
        table.Table([stale], miss="error", origin="lock.json").serve(stepping, problem())


OTHER = {"key": "elsewhere", "name": "another processor", "torch": "1.0"}


@pytest.mark.parametrize(
    ("device", "threads"), [(OTHER, 1), (None, 1), (fingerprint().to_dict(), 64)], ids=["device", "unknown", "threads"]
)
def test_what_was_measured_elsewhere_serves_only_when_it_was_checked_here(
    stepping, tmp_path, monkeypatch, device, threads
):
    path = tmp_path / f"{tuned.device_name('cpu')}.json"
    said = []
    monkeypatch.setattr(tuned.log, "warning", lambda message, *values: said.append(message % values))
    path.write_text(table.written([entry(stepping)], device=device, threads=threads))

    assert tuned.explain(stepping, problem()).why == "default"
    assert tuned.explain(stepping, problem(65)).why == "default"
    assert "measured elsewhere" in tuned.table("cpu").missed(stepping, problem())
    assert tuned.untouched(stepping, torch.device("cpu"))
    assert len(said) == 1 and "1 entries were measured elsewhere" in said[0]
    if device is OTHER:
        assert "name another processor, " in said[0] and "torch 1.0" in said[0]

    checked = replace(entry(stepping), where=table.Where(fingerprint().key, 1), checked=True)
    old = tuned.table("cpu").all
    path.write_text(table.written([*old, checked], device=HERE["device"], threads=1))
    tuned.use("cpu", None)
    assert tuned.explain(stepping, problem()).why == "near"


def test_a_program_that_changes_its_number_of_threads_gets_what_was_measured_with_that_number(stepping, tmp_path):
    path, threads, x = tmp_path / f"{tuned.device_name('cpu')}.json", torch.get_num_threads(), torch.ones(64, 8)
    path.write_text(table.written([entry(stepping)], device=HERE["device"], threads=threads))
    assert (tuned.choose(stepping, problem()).configuration, run(stepping, x)[0, 0]) == ((("step", 2),), 3)
    assert not tuned.untouched(stepping, x.device)

    torch.set_num_threads(threads + 1)
    try:
        assert (tuned.choose(stepping, problem()).configuration, run(stepping, x)[0, 0]) == ((("step", 1),), 2)
        assert tuned.untouched(stepping, x.device)
        inside = tuned._on_threads(threads, lambda: tuned.explain(stepping, problem()).why)
        assert inside() == "default", "the look-up inside is for the number of the program"
    finally:
        torch.set_num_threads(threads)
    assert (tuned.choose(stepping, problem()).configuration, run(stepping, x)[0, 0]) == ((("step", 2),), 3)


def test_a_lock_file_has_a_hash_of_all_of_it(stepping, tmp_path):
    path = tmp_path / "lock.json"
    text = table.written([entry(stepping)], miss="error", **HERE)
    for changed in (
        text.replace('"miss": "error"', '"miss": "default"'),
        text.replace('"threads": 1', '"threads": 2'),
        text.replace('"sha256"', '"sha"'),
        json.dumps({**json.loads(text), "sha256": None}),
        table.written([entry(stepping)], **HERE),
    ):
        path.write_text(changed)
        with pytest.raises(ValueError, match=r"it (was changed after it was locked|has no hash)"):
            table.read(path, lock=True)


def test_a_device_with_a_number_has_its_own_table(monkeypatch):
    names = {None: "First GPU", 0: "First GPU", 1: "Second GPU"}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: names[number])

    assert tuned.device_name("cuda") == tuned.device_name("cuda:0") == "first-gpu"
    assert tuned.device_name("cuda:1") == "second-gpu"


def test_what_is_built_for_each_shape_serves_no_other(stepping):
    adding = replace(stepping.implementations["adding"], builds=True)
    building = replace(stepping, implementations={**stepping.implementations, "adding": adding})
    made = table.Table([entry(building, rows=64)])
    assert made.serve(building, problem(64)).why == "exact"
    assert made.serve(building, problem(65)).why == "default"
    assert made.serve(stepping, problem(65)).why == "near"


def test_a_lock_file_is_served_and_nothing_else(stepping, tmp_path, monkeypatch):
    lock, other = tmp_path / "lock.json", tmp_path / f"{tuned.device_name('cpu')}.json"
    lock.write_text(table.written([entry(stepping)], miss="error", **HERE))
    other.write_text(table.written([entry(stepping, Choice.of("doubling"))], **HERE))
    assert tuned.explain(stepping, problem()).choice == Choice.of("doubling")
    monkeypatch.setenv(tuned.LOCK, str(lock))
    tuned.use("cpu", None)
    assert tuned.explain(stepping, problem()).why == "locked"
    assert torch.equal(run(stepping, torch.ones(64, 8)), torch.full((64, 8), 3.0))
    for rows in (1, 65):  # also one that is near
        with pytest.raises(
            table.LockedMiss, match=rf"lock\.json has no valid entry for stepping cpu float32 rows={rows} "
        ):
            run(stepping, torch.ones(rows, 8))
    lock.write_text(table.written([entry(stepping)], miss="default", **HERE))
    tuned.use("cpu", None)
    assert [tuned.explain(stepping, problem(rows)).why for rows in (64, 1)] == ["locked", "default"]


def test_a_table_comes_back_from_its_file(stepping, tmp_path):
    path = tmp_path / "table.json"
    entries = [entry(stepping), entry(stepping, Choice.of("doubling"), 0.5, rows=1, gradients=True)]
    path.write_text(table.written(entries, device={"key": "a processor"}))
    found = table.read(path)
    there = table.Where("a processor")
    assert list(found.entries.values()) == [replace(each, where=there) for each in entries]


BAD = {
    "missing": None,
    "no JSON": "{",
    "a list": "[]",
    "without entries": "{}",
    "half a row": '{"entries": [{"operation": "stepping"}]}',
    "sizes that are none": '{"entries": [{"operation": "x", "device": "cpu", "dtype": "y", "sizes": 3, "flags": {}}]}',
    "sizes in words": '{"entries": [{"operation": "x", "device": "cpu", "dtype": "y", "sizes": {"rows": "few"}}]}',
    "nested too deeply": "[" * 100_000,
    "a miss that is none": '{"entries": [], "miss": "guess"}',
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_a_file_that_is_no_table_says_so(tmp_path, text):
    path = tmp_path / "table.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=r"table\.json is not a table of tuned kernels: "):
        table.read(path)


@pytest.mark.parametrize("text", [text for text in BAD.values() if text is not None])
def test_a_damaged_table_makes_no_call_fail_but_a_damaged_lock_does(stepping, tmp_path, monkeypatch, text):
    messages = []
    monkeypatch.setattr(tuned.log, "warning", lambda message, *values: messages.append(message % values))
    path = tmp_path / f"{tuned.device_name('cpu')}.json"
    path.write_text(text)
    for _ in range(2):
        assert tuned.launch(stepping, problem(), None, torch.ones(1)) == 2, "one added"
        assert tuned.explain(stepping, problem()).why == "default"
    (said,) = messages
    assert "is not a table of tuned kernels" in said and "The defaults serve" in said

    monkeypatch.setenv(tuned.LOCK, str(path))
    tuned.use("cpu", None)
    with pytest.raises(ValueError, match="is not a table"):
        tuned.launch(stepping, problem(), None, torch.ones(1))


def test_an_account_without_a_home_directory_has_the_defaults(stepping, monkeypatch):
    def unknown():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv(tuned.TABLES)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setattr("kernels.dispatch.tuned.Path.home", unknown)
    tuned.use("cpu", None)
    assert tuned.explain(stepping, problem()).why == "default"
    with pytest.raises(OSError, match="Not a directory"):
        (tuned.data_folder() / "kernels").mkdir(parents=True)


def test_the_first_folder_with_a_table_counts(stepping, tmp_path, monkeypatch):
    name = f"{tuned.device_name('cpu')}.json"
    monkeypatch.delenv(tuned.TABLES)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "own"))
    monkeypatch.setattr(tuned, "SHIPPED", tmp_path / "shipped")
    for folder, step in ((tmp_path / "shipped", 3), (tmp_path / "own" / "tessera" / "tables", 2)):
        folder.mkdir(parents=True)
        (folder / name).write_text(table.written([entry(stepping, Choice.of("adding", {"step": step}))], **HERE))
        tuned.use("cpu", None)
        assert tuned.explain(stepping, problem()).choice == Choice.of("adding", {"step": step})
    monkeypatch.setenv(tuned.TABLES, str(tmp_path / "shipped" / name))
    tuned.use("cpu", None)
    assert tuned.explain(stepping, problem()).choice == Choice.of("adding", {"step": 3})


def test_a_known_problem_is_served_without_asking_what_is_traced(stepping, monkeypatch):
    x = torch.ones(64, 8)
    run(stepping, x)
    monkeypatch.setattr(tuned, "is_compiling", lambda: pytest.fail("it asked"))
    assert torch.equal(run(stepping, x), x + 1)


def test_a_configuration_at_the_call_wins(stepping):
    tuned.use("cpu", table.Table([entry(stepping)]))
    x = torch.full((64, 8), 5.0)
    assert torch.equal(run(stepping, x, Choice.of("doubling")), 2 * x)
    assert torch.equal(run(stepping, x, Choice.of("adding")), x + 1)
    assert torch.equal(tuned.launch(stepping, problem(), Choice.of("doubling"), x), 2 * x)
    with pytest.raises(ValueError, match="step must be one of"):
        run(stepping, x, Choice.of("adding", {"step": 7}))


def test_nothing_is_remembered_beyond_a_bound(stepping, monkeypatch):
    monkeypatch.setattr(tuned, "MOST", 3)
    for rows in range(1, 9):
        run(stepping, torch.ones(rows, 8))
    assert len(tuned._ready) <= 3
    assert len(tuned._served) <= 3


def test_what_is_asked_for_can_be_recorded(stepping):
    run(stepping, torch.ones(64, 8))
    with tuned.asked() as problems:
        for rows in (64, 64, 1):
            run(stepping, torch.ones(rows, 8))
        tuned.launch(stepping, problem(), None, torch.ones(64, 8))
    assert problems == {problem(64): 3, problem(1): 1}
    run(stepping, torch.ones(2, 8))
    assert len(problems) == 2


def test_only_an_operation_of_which_nothing_was_tuned_is_untouched(stepping):
    cpu = torch.device("cpu")
    assert tuned.untouched(stepping, cpu)
    with tuned.asked():
        assert not tuned.untouched(stepping, cpu)
    tuned.use("cpu", table.Table([entry(stepping)]))
    assert not tuned.untouched(stepping, cpu)
    tuned.use("cpu", table.Table(miss="error"))
    assert not tuned.untouched(stepping, cpu)


@pytest.mark.parametrize("strict", [False, True])
def test_a_size_that_depends_on_the_data_can_be_traced(stepping, strict):
    class Model(torch.nn.Module):
        def forward(self, x):
            return run(stepping, x[x[:, 0] > 0])

    x = torch.arange(-4.0, 8).view(6, 2)
    traced = torch.export.export(Model(), (x,), strict=strict).module()
    assert torch.equal(traced(x), x[3:] + 1)


@pytest.mark.parametrize("way", ["compile", "export", "strict export"])
def test_a_trace_takes_the_choice_for_the_size_it_is_traced_with(stepping, way):
    tuned.use("cpu", table.Table([entry(stepping)]))

    class Model(torch.nn.Module):
        def forward(self, x):
            return run(stepping, x) + 10 * run(stepping, x, Choice.of("doubling"))

    x, other = torch.ones(64, 8), torch.ones(48, 8)
    if way == "compile":
        traced = torch.compile(Model(), backend="eager", fullgraph=True)
    else:
        rows = {"x": {0: torch.export.Dim("rows", min=2, max=99)}}
        traced = torch.export.export(Model(), (x,), dynamic_shapes=rows, strict=way == "strict export").module()
    assert torch.equal(traced(x), torch.full((64, 8), 23.0))
    assert torch.equal(traced(other), torch.full((48, 8), 23.0))
