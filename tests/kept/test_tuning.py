"""What earlier code measured and decided for a device: tables, lock files, measurements, records, users' kernels."""

import gzip
import importlib.util
import json
import shutil
import sys
from pathlib import Path

import pytest
import torch

from kernels.dispatch.device import fingerprint
from tuner.search.folder import Folder

TUNING = Path(__file__).parent / "tuning"
OWN = ("kept_scaled", "--load", "own_operation.py", "--problems", "own_problems.yaml")
# A process reads its table once, so each case is a process of its own; they are forked, as imports take seconds.
FORKED = """
import contextlib, io, json, os, sys
import torch
sys.path.insert(0, os.getcwd())
import own_operation
from kernels.dispatch import tuned
from nas.cli import main
tuned.use("cpu", None)  # forget what was read before the fork
for number, (environment, commands) in enumerate(json.loads(sys.argv[1])):
    if os.fork() == 0:
        os.environ |= environment
        said = []
        for command in commands:
            out, code, sys.argv = io.StringIO(), 0, ["nas", *command]
            with contextlib.redirect_stdout(out):
                try:
                    main()
                except SystemExit as ended:
                    code = int(ended.code or 0)
            said.append([code, out.getvalue()])
        x, w = torch.ones(64, 16), torch.arange(16.0)
        try:
            some = [own_operation.scaled(x, w), own_operation.scaled(x[:9, :3], w[:3])]
            said.append([some[0].equal(x * w), some[1].equal((x * w)[:9, :3])])
        except (LookupError, ValueError) as error:
            said.append([False, str(error)])
        with open(f"{number}.json", "w") as file:
            json.dump(said, file)
        os._exit(0)
    os.wait()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    shutil.copytree(TUNING, tmp_path, dirs_exist_ok=True)
    (tmp_path / "tuning.db").write_bytes(gzip.decompress((TUNING / "tuning.db.gz").read_bytes()))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_tables_and_lock_files_serve(folder, forked):
    explain = ["tune", "explain", *OWN, "--threads", "1", "--storage", "sqlite:///tuning.db", "--json"]
    show = ["tune", "show", "--json"]
    cases = [
        ({"NAS_KERNEL_TABLES": "table.json"}, [explain]),
        ({"NAS_KERNEL_LOCK": "default.lock.json"}, [show]),
        ({"NAS_KERNEL_LOCK": "error.lock.json"}, [show]),
        ({"NAS_KERNEL_LOCK": "changed.lock.json"}, [show]),
    ]
    table = json.loads(Path("table.json").read_text())
    Path("table.json").write_text(json.dumps(table | {"device": fingerprint("cpu").to_dict()}))  # as if measured here
    text = Path("default.lock.json").read_text()
    Path("changed.lock.json").write_text(text.replace('"whole"', '"parts"'))
    done = forked(FORKED, json.dumps(cases), folder=folder)
    assert done.returncode == 0, done.stderr

    table, default, error, changed = (json.loads(Path(f"{number}.json").read_text()) for number in range(4))
    for said, file in ((default, "default.lock"), (error, "error.lock")):
        entries, (code, rows) = json.loads(Path(f"{file}.json").read_text())["entries"], said[0]
        assert code == 0
        assert [row["milliseconds"] for row in json.loads(rows)] == [entry["milliseconds"] for entry in entries]
    reasons = [(row["choice"], row["why"]) for row in json.loads(table[0][1]) if row["serves"]]
    assert reasons == [("whole", "exact")] * 3, "what was found serves, not the default"
    assert table[-1] == default[-1] == [True, True]
    assert error[-1][0] is False, "a problem that the lock file lacks is refused"
    assert changed[0][0] == 2 and changed[-1][0] is False, "a lock file that was changed by hand is refused"


@pytest.mark.parametrize("file", ["measurements.jsonl.gz", "kept_scaled.jsonl"])
def test_exported_measurements_are_imported_and_exported_as_they_were(file, folder, nas):
    lines = lines_of(folder / file)

    assert nas("tune", "import", file, "--storage", "new.db", "--json").json()["new"] > 0
    assert nas("tune", "import", file, "--storage", "new.db", "--json").json()["new"] == 0, "all of it is known"
    nas("tune", "export", "again.jsonl", "--storage", "new.db")

    again = lines_of(folder / "again.jsonl")
    assert len(again) == len(lines)
    assert all(old.items() <= new.items() for old, new in zip(lines, again, strict=True))


def lines_of(path):
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in text.splitlines()]


def test_the_measurements_of_a_database_are_kept(folder, nas):
    """They are read after the database was brought to today's tables."""
    nas("tune", "export", "again.jsonl", "--storage", "sqlite:///tuning.db")

    again = lines_of(folder / "again.jsonl")
    assert all(old in again for old in lines_of(folder / "kept_scaled.jsonl")[1:])


def test_the_measurements_of_both_earlier_places_are_found_without_naming_them(folder, nas, monkeypatch):
    """`nas tune` wrote to runs/tuning.db, and `tuner.tune` to a folder in the user's data directory."""
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "data"))
    monkeypatch.delenv("NAS_STORAGE", raising=False)
    for place in ("runs", "data/tessera/kernels"):
        (folder / place).mkdir(parents=True)
    (folder / "tuning.db").rename(folder / "runs" / "tuning.db")
    own = "own_kernel.scale_kernel"
    text = (folder / f"kernels-{own}.jsonl").read_text()
    (folder / "data/tessera/kernels" / f"{own}.jsonl").write_text(text)

    nas("tune", "export", "again.jsonl")

    again = lines_of(folder / "again.jsonl")
    of_folder = [row for row in lines_of_kernel(folder / f"kernels-{own}.jsonl") if row]
    in_database = lines_of(folder / "kept_scaled.jsonl")[1:]
    assert all(old in again for old in in_database)
    assert all(any({**row, "device": 0}.items() <= {**new, "device": 0}.items() for new in again) for row in of_folder)


def test_a_recorded_space_is_replayed(folder, nas):
    record = ("kept_scaled.record.json.gz", "--strategy", "random", "--evaluations", "2", "--seeds", "2")

    (row,) = nas("tune", "replay", *record, "--json").json()

    assert row["strategy"] == "random"


@pytest.fixture
def own_kernel(monkeypatch):
    """The module of the user's kernel, where Triton interprets it, and tuning is allowed in a test."""
    if torch.cuda.is_available():
        pytest.skip("the kept measurements are of Triton's interpreter")
    pytest.importorskip("triton")
    monkeypatch.setenv("NAS_TUNING", "on")
    spec = importlib.util.spec_from_file_location("own_kernel", TUNING / "own_kernel.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "own_kernel", module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def here(own_kernel, tmp_path):
    """The fingerprint of this machine, as a kernel that is tuned for a moment records it."""
    store = Folder(tmp_path / "here")
    own_kernel.launch(own_kernel.tuned(store.path, budget=0.0))
    assert store.rows("own_kernel.scale_kernel")
    (found,) = store.devices().values()
    return found


def test_a_kernel_of_the_users_own_is_served_what_a_folder_knows(own_kernel, here, folder):
    store = folder / "store"
    store.mkdir()
    kept = lines_of_kernel(folder / "kernels-own_kernel.scale_kernel.jsonl")
    text = "".join("\n" + json.dumps({**row, "device": here}) for row in kept)
    (store / "own_kernel.scale_kernel.jsonl").write_text(text)

    check(own_kernel, store, 256)
    assert len(Folder(store).rows("own_kernel.scale_kernel")) == len(kept), "nothing was measured again"


def lines_of_kernel(path):
    return [json.loads(line) for line in path.read_text().splitlines() if line]


def test_a_kernel_of_the_users_own_is_served_what_a_database_knows(own_kernel, here, folder, kept):
    kept.change(folder / "tuning.db", "UPDATE device SET hash = ?, fingerprint = ?", here["key"], json.dumps(here))

    check(own_kernel, f"sqlite:///{folder / 'tuning.db'}", 16)  # no other was faster beyond the noise


def check(own_kernel, store, block):
    kernel = own_kernel.tuned(store)
    served = kernel.explain(*own_kernel.arguments())

    assert served.config.kwargs == {"BLOCK": block}, served.why
    assert served.milliseconds is not None, "a configuration that nobody measured has none"
    assert own_kernel.launch(kernel).equal(torch.arange(300.0) * 3)


def test_what_triton_measured_is_read(own_kernel, folder):
    (folder / "listened").mkdir()
    shutil.copy(
        folder / "listened-own_kernel.scale_kernel.jsonl", folder / "listened" / "own_kernel.scale_kernel.jsonl"
    )

    served = own_kernel.tuned(folder / "listened").explain(*own_kernel.arguments())

    assert served.config.kwargs == {"BLOCK": 16}, "another key than ours: the first configuration serves"
