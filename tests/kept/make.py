"""History: made the files of this folder with commit 9095e06. Later code only reads them; do not run it again.

    cd FOLDER && PYTHONPATH=CHECKOUT python make.py STAGE ...

FOLDER is an empty folder with a neutral name (it was /tmp/kept), CHECKOUT the code of that commit. Files are written to
the folder of this script. The stage `older` was run twice, with the last commits of schema versions 0001 and 0002.
"""

import gzip
import importlib
import json
import math
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType

KEPT = Path(__file__).resolve().parent
HERE = Path.cwd()
MACHINE = "0123456789ab"
LEASE = "9000000000"  # seconds: 285 years


def nas(*arguments: str, check: bool = True, **environment: str) -> str:
    """`nas ARGUMENTS` -> what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "nas", *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    assert not check or done.returncode in (0, 1), (arguments, done.returncode)
    return done.stdout


def begun(*arguments: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-m", "nas", *arguments], stderr=subprocess.DEVNULL)


def inputs() -> None:
    for path in (KEPT / "studies").iterdir():
        if path.suffix in (".yaml", ".py", ".txt"):
            shutil.copy(path, HERE / path.name)


def keep(name: str, as_name: str | None = None) -> None:
    """The database of a study: neutral names of machines, one file with nothing in its log, gzipped."""
    copy = HERE / f"{as_name or name}.copy.db"
    for ending in ("", "-wal"):
        source = HERE / "runs" / f"{name}.db{ending}"
        if source.exists():
            shutil.copy(source, f"{copy}{ending}")
    with sqlite3.connect(copy, isolation_level=None) as connection:
        connection.create_function("neutral", 1, neutral)
        connection.execute("UPDATE unit SET owner = neutral(owner), error_text = neutral(error_text)")
        connection.execute("UPDATE trial SET error_text = neutral(error_text)")
        if name == "latency":  # a machine that nobody has
            (key,) = connection.execute("SELECT hash FROM device").fetchone()
            connection.execute("UPDATE trial SET evidence = replace(evidence, ?, ?)", (key, MACHINE))
            connection.execute(
                "UPDATE device SET hash = ?2, fingerprint = replace(fingerprint, ?1, ?2)", (key, MACHINE)
            )
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("VACUUM")
    connection.close()
    packed(copy, KEPT / "studies" / f"{as_name or name}.db.gz")


def packed(source: Path, target: Path) -> None:
    packed_text(source.read_bytes(), target)


def neutral(text: str | None) -> str | None:
    """A host called laptop, and no folder but that of the study."""
    if text is None:
        return None
    text = re.sub(r"(?<=/)[0-9a-f]{32}-\d+(?=/)", "0" * 32 + "-1", text)
    text = re.sub(rf"(^|/){re.escape(os.uname().nodename)}/", r"\1laptop/", text)
    return re.sub(r'"/[^"]*/(site-packages|lib/python3\.\d+|src)/', r'"\1/', text)


def finished() -> None:
    nas("search", "finished.yaml")
    nas("export", "finished", "--best", "--weights", "--out", KEPT / "exports/winner.yaml")
    keep("finished")
    number = int(re.findall(r"^# +trial: (\d+)", (KEPT / "exports/winner.yaml").read_text(), re.M)[1])  # of the finals
    for path in (HERE / "runs" / "finished").glob(f"trial-{number:06d}-*.pt"):
        shutil.copy(path, KEPT / "studies" / "checkpoints" / "finished")


def interrupted() -> None:
    """Two processes: the first is stopped with Ctrl-C, then the second is killed before it takes what was left."""
    first = begun("search", "interrupted.yaml")
    wait_for("interrupted", "SELECT count(*) >= 4 FROM unit WHERE state = 'done'")
    second = begun("search", "interrupted.yaml")
    wait_for("interrupted", "SELECT count(DISTINCT owner) = 2 AND max(rung) = 1 FROM unit WHERE state = 'running'")
    first.send_signal(signal.SIGINT)
    wait_for("interrupted", "SELECT sum(state = 'queued') = 1 AND sum(state = 'running') = 1 FROM unit")
    second.kill()
    first.wait(), second.wait()
    keep("interrupted")
    with sqlite3.connect(HERE / "runs" / "interrupted.db") as connection:
        uris = connection.execute("SELECT checkpoint_uri FROM unit WHERE checkpoint_uri IS NOT NULL").fetchall()
        print(connection.execute("SELECT state, count(*) FROM unit GROUP BY state").fetchall())
    for (uri,) in uris:
        shutil.copy(uri, KEPT / "studies" / "checkpoints" / "interrupted" / Path(uri).name)


def wait_for(study: str, question: str) -> None:
    """Until the database answers the question with 1."""
    for _ in range(6000):
        with_file = HERE / "runs" / f"{study}.db"
        if with_file.exists():
            try:
                with sqlite3.connect(with_file) as connection:
                    (answer,) = connection.execute(question).fetchone()
                if answer:
                    return
            except sqlite3.OperationalError:
                pass
        time.sleep(0.01)
    raise TimeoutError(question)


def plain() -> None:
    for name in ("failing", "lost", "optuna", "own_task", "contract_task", "digits", "reversal", "latency"):
        nas("search", f"{name}.yaml")
        keep(name)


def grown() -> None:
    nas("search", "grown-before.yaml")
    nas("search", "grown.yaml")
    keep("grown")


def asked() -> None:
    """Four told (one as a failure), one leased for long, one whose lease has run out; and another study beside it."""
    code = 'import nas; nas.open_study("runs/asked.db", "asked", "asked.yaml").close()'
    subprocess.run([sys.executable, "-c", code], check=True)
    for number in range(5):
        (unit,) = json.loads(nas("ask", "asked", "--lease", LEASE, "--json"))
        told = ["--failure", "the machine was needed"] if number == 2 else [f"loss={3 - number / 4}", "error=0.5"]
        nas("tell", "asked", str(unit["unit"]), "--owner", unit["owner"], *told, "--seconds", "1.5")
    nas("ask", "asked", "--lease", LEASE)
    nas("ask", "asked", "--lease", "1")
    code = 'import nas; nas.open_study("runs/asked.db", "beside", "grown.yaml").close()'
    subprocess.run([sys.executable, "-c", code], check=True)
    time.sleep(1.5)
    keep("asked")


def older(version: str) -> None:
    """A finished study, run with the last code that made databases of an older schema version."""
    nas("search", f"schema-{version}.yaml")
    keep(f"schema-{version}")


def tuning() -> None:
    """What is measured, the table that serves, lock files, exported measurements and records."""
    for path in (KEPT / "tuning").iterdir():
        if path.suffix in (".yaml", ".py"):
            shutil.copy(path, HERE / path.name)
    place = {"NAS_KERNEL_TABLES": str(HERE / "table.json"), "NAS_STORAGE": str(HERE / "runs" / "tuning.db")}
    own = ("--load", "own_operation.py", "--problems", "own_problems.yaml")
    for name, options in (("all", ("--problems", "problems.yaml")), ("kept_scaled", own)):
        nas("tune", name, "--effort", "quick", "--budget", "60s", "--threads", "1", *options, **place)
    kept = KEPT / "tuning"
    for miss in ("default", "error"):
        lock = ["nas", "tune", "lock", f"{kept}/{miss}.lock.json", "--miss", miss]
        code = f"import sys, own_operation; sys.argv = {lock}; from nas.cli import main; main()"
        subprocess.run([sys.executable, "-c", code], env=os.environ | place, check=False)
    nas("tune", "export", kept / "measurements.jsonl.gz", **place)
    nas("tune", "export", kept / "kept_scaled.jsonl", "kept_scaled", **place)
    records = ("--folder", "records", "--samples", "3", "--threads", "1", "--budget", "60s")
    nas("tune", "record", "kept_scaled", "--load", "own_operation.py", *records)
    shutil.copy(HERE / "table.json", kept)
    for path in (HERE / "records").glob("*.json.gz"):
        packed_text(gzip.decompress(path.read_bytes()), kept / "kept_scaled.record.json.gz")


def own_kernel() -> None:
    """The same kernel tuned into a folder, into the database, and listened to under triton.autotune."""
    code = """
import own_kernel, triton, tuner
for store in ("kernels", None):
    own_kernel.launch(own_kernel.tuned(store))
x, y, size, factor = own_kernel.arguments()
configs = [triton.Config({"BLOCK": block}) for block in (16, 64)]
with tuner.listen("listened") as listener:
    bench = lambda call, quantiles: (call(), [0.5, 0.4, 0.6])[1]
    kernel = triton.autotune(configs=configs, key=["size"], do_bench=bench)(own_kernel.scale_kernel)
    kernel[lambda meta: (triton.cdiv(size, meta["BLOCK"]),)](x, y, size, factor)
    print(listener.recorded)
"""
    more = {**os.environ, "NAS_STORAGE": str(HERE / "runs" / "tuning.db"), "TRITON_INTERPRET": "1", "NAS_TUNING": "on"}
    subprocess.run([sys.executable, "-c", code], env=more, check=True)
    for folder in ("kernels", "listened"):
        for path in (HERE / folder).iterdir():
            shutil.copy(path, KEPT / "tuning" / f"{folder}-{path.name}")
    keep("tuning")
    (KEPT / "studies" / "tuning.db.gz").rename(KEPT / "tuning" / "tuning.db.gz")


def packed_text(content: bytes, target: Path) -> None:
    with target.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as out:
        out.write(content)


def outputs() -> None:
    """What the commands said of each study, as the tests ask for it."""
    kept = reader()
    for path in sorted((KEPT / "studies").glob("*.db.gz")):
        name = path.name.partition(".")[0]
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            database = kept.unpacked(name, Path(folder))
            said = {" ".join(each): kept.call(*each).json() for each in kept.questions(name, database)}
        written(KEPT / "outputs" / f"{name}.json", said)


def exports() -> None:
    """The best and another trial of every study, as `nas export` writes them; the weights of one more."""
    kept = reader()
    for path in sorted((KEPT / "studies").glob("*.db.gz")):
        name = path.name.partition(".")[0]
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            kept.unpacked(name, Path(folder))
            kept.call("export", name, "--best", "--out", KEPT / "exports" / f"{name}.yaml")
            if name == "reversal":  # with a block called kernel_attention
                kept.call("export", name, "--trial", "0", "--out", KEPT / "exports" / f"{name}-0.yaml")
            if name == "interrupted":
                kept.call("export", name, "--trial", "1", "--weights", "--out", KEPT / "exports" / f"{name}-1.yaml")


def architectures() -> None:
    """Each file of the zoo, its base and its tiny size, and architectures of the large spaces: text, hash and costs."""
    from searchspace.architecture import Architecture

    kept = reader()
    texts = {}
    for each in kept.call("zoo", "list", "--json").json():
        for size in ("base", "tiny"):
            said = kept.call("zoo", "show", each["name"], "--size", size, "--json").json()
            texts[f"{each['name']}:{size}"] = said["text"]
    for space in ("everything", "everything_encoder_decoder"):
        said = kept.call("space", "sample", KEPT / f"search/spaces/{space}.yaml", "-n", "40", "--seed", "5", "--json")
        small = sorted((each["architecture"] for each in said.json()), key=len)[:5]
        texts |= {f"{space}:{number}": text for number, text in enumerate(small)}
    for path in sorted((KEPT / "exports").glob("*.yaml")):
        texts[f"exports/{path.name}"] = path.read_text()
    found, weights = {}, {}
    for name, text in texts.items():
        (HERE / "one.yaml").write_text(text)
        said = kept.call("show", HERE / "one.yaml", "--length", "64", "--json").json()
        assert said["hash"] == Architecture.parse(text).hash
        found[name] = {"hash": said["hash"], "cost": said["cost"]} | ({} if "exports/" in name else {"text": text})
        if not name.endswith(":base") and said["cost"]["parameters"] < 1_000_000:
            model = kept.filled(importlib.import_module("nas").build(HERE / "one.yaml"))
            shapes = {key: list(value.shape) for key, value in model.state_dict().items()}
            answers = kept.answers(model, text, 8 if "exports" in name else 16)
            if all(map(math.isfinite, answers)):
                weights[name] = {"shapes": shapes, "answers": answers}
    for name, content in (("architectures", found), ("weights", weights)):
        packed_text(json.dumps(content, indent=1).encode(), KEPT / f"{name}.json.gz")


def searches() -> None:
    """What a study keeps of each search file, and the first architectures that it proposes; the sizes of the spaces."""
    kept = reader()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        kept.searchable(Path(folder))
        files = kept.search_files(Path(folder))
        written(KEPT / "search" / "kept.json", {path.name: kept.entered(path, Path(folder)) for path in files})
        said = {path.name: kept.spaced(path) for path in sorted((KEPT / "search/spaces").glob("*.yaml"))}
    written(KEPT / "search" / "spaces.json", said)


def reader() -> ModuleType:
    """What the tests read the files with."""
    sys.path.insert(0, str(KEPT))
    return importlib.import_module("conftest")


def written(path: Path, content: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    inputs()
    for stage in sys.argv[1:]:
        name, _, argument = stage.partition("=")
        globals()[name](*[argument] * bool(argument))
