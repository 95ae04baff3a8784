"""A page sees what a folder holds, without reading again what has not changed."""

from kernels.dispatch.registry import Choice, Problem
from tuner.device import fingerprint
from tuner.outcome import Kind, Outcome
from tuner.search.cache import Cache, Sources
from tuner.search.folder import Folder
from tuner.search.overview import Overview


def problem(rows):
    return Problem("scale", "cpu", "float32", (("rows", rows),))


def test_the_problems_of_a_folder_with_their_counts(tmp_path, monkeypatch):
    folder = Folder(tmp_path)
    cache = Cache(folder, "scale", fingerprint("cpu"), Sources.of_kernel("code"), 1)
    for rows in (1, 2):
        cache.write(problem(rows), {Choice.of("triton", {"BLOCK": 1}): Outcome(Kind.TIMED, (float(rows),))})
        cache.write(problem(rows), {Choice.of("triton", {"BLOCK": 2}): Outcome(Kind.WRONG)})
    cache.pack(problem(1))  # of this problem there are two files
    cache.write(problem(1), {Choice.of("triton", {"BLOCK": 3}): Outcome(Kind.TIMED, (0.5,))})
    cache.forget()

    overview = Overview(folder)
    assert overview.read(0.0)[1] == len(folder.files()), "no time, nothing is read"
    rows, left = overview.read(60.0)
    counts = [(row["count"], row["failures"], row["milliseconds"]) for row in rows]
    assert (sorted(counts), left) == ([(2, 1, 2.0), (3, 1, 0.5)], 0)
    assert {row["device"] for row in rows} == set(folder.devices()) == {fingerprint("cpu").key}

    monkeypatch.setattr(Folder, "rows_in", None)
    assert overview.read(0.0) == (rows, 0), "nothing has changed"


def test_an_operation_is_no_way_out_of_the_folder(tmp_path):
    inside = Folder(tmp_path / "kernels")
    cache = Cache(Folder(tmp_path), "scale", fingerprint("cpu"), Sources.of_kernel("code"), 1)
    cache.write(problem(1), {Choice.of("triton"): Outcome(Kind.TIMED, (1.0,))})
    (tmp_path / "scale").rename(tmp_path / "kernels")
    (tmp_path / "kernels" / "inner").mkdir()

    assert inside.rows("..") == inside.rows(".") == inside.rows("") == []
