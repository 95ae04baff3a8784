"""Blocks of a user's own: read, run once, shipped as text, checked."""

import dataclasses
from pathlib import Path

import pytest

import nas
from nas import location
from nas.config import searchfile
from nas.config.schema import SearchConfig
from nas.engine.resolve import resolve
from nas.errors import UsageError
from nas.exports import files, header, winner
from nas.own import blocks
from nas.own.imported import own
from nas.own.report import checked
from nas.training.unit import run
from nas.work import FailureKind, Work
from searchspace.checking import cases
from searchspace.errors import SpaceError
from searchspace.model.architecture import Architecture
from searchspace.registry import block_types

EXAMPLES = Path(__file__).parents[3] / "examples"
EXAMPLE = (EXAMPLES / "own_block.py").read_text()
TEXT = "kind: decoder\nwidth: 8\nvocabulary: 17\nbody:\n  token_shift: {start: 0.25}\n"
SEARCH = """\
study: own
blocks: [mine.py]
space: {kind: decoder, width: 8, body: {token_shift: {start: !choice [0.25, 0.5]}}}
task: {copy: {length: 8}}
objectives: [loss]
scheduler: {full: {steps: 2}}
budget: {trials: 2}
"""


@pytest.fixture(autouse=True)
def forgotten(forget_own_blocks):
    """No block of a test stays in this process."""
    yield
    forget_own_blocks()
    assert "token_shift" not in block_types()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(EXAMPLE)
    (tmp_path / "search.yaml").write_text(SEARCH)
    return tmp_path


def test_a_search_file_names_files_of_blocks_and_keeps_their_texts(folder):
    config = searchfile.load(folder / "search.yaml")
    assert config.blocks == {"mine.py": EXAMPLE}
    assert SearchConfig.model_validate_json(config.model_dump_json()).blocks == config.blocks
    assert own(config).local == (), "a child process needs no module: it is sent the text"
    assert block_types()["token_shift"].family == "own"
    assert Architecture.parse(TEXT).text() == TEXT


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("mine.py", "import nowhere\n", 'mine.py", line 1'),
        ("mine.py", "x = 1\ny = 1 / 0\n", 'mine.py", line 2'),
        ("mine.py", "raise SystemExit(3)\n", "SystemExit"),
        ("mine.py", "x = 1\n", "mine.py registers no block"),
        ("mine.py", EXAMPLE.replace('"token_shift"', '"gru"'), "called 'gru'"),
        ("mine.py", EXAMPLE.replace('"token_shift"', '"decoder"'), "a block of another role has this name"),
        ("mine.py", EXAMPLE.replace('"token_shift"', '""'), "begin with a letter"),
        ("mine.py", EXAMPLE.replace('"token_shift", TokenShiftConfig', 'TokenShiftConfig, "a"'), "begin with a letter"),
        ("mine.py", EXAMPLE.replace("TokenShiftConfig)\nclass", 'TokenShiftConfig, role="x")\nclass'), "block, norm"),
        ("mine.py", EXAMPLE.replace("@dataclass(frozen=True, kw_only=True)", ""), "must be a dataclass"),
        ("mine.py", EXAMPLE.replace("dim: int = given()", "width: int = given()"), "given() marks width"),
        ("mine.py", EXAMPLE.replace("(Primitive)", "(nn.Module)"), "a subclass of searchspace.contract.Primitive"),
        ("mine.py", EXAMPLE.partition("    @classmethod")[0], "Define the class method `cost"),
        ("mine.py", EXAMPLE.replace("import torch\n", "import sibling\nimport torch\n", 1), "sent to workers"),
        ("mine.txt", EXAMPLE, "a file that ends with .py"),
        ("gone.py", None, "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_at_its_line(folder, name, text, said):
    (folder / "sibling.py").write_text("x = 1\n")
    if text is not None:
        (folder / name).write_text(text)
    (folder / "search.yaml").write_text(SEARCH.replace("mine.py", name))
    with pytest.raises(UsageError, match=r"search\.yaml:2: blocks") as refused:
        searchfile.load(folder / "search.yaml")
    assert said in str(refused.value)
    assert block_types()["gru"].family == "recurrence"


def test_an_error_in_a_file_can_be_mended_in_the_same_process(folder):
    (folder / "mine.py").write_text(EXAMPLE + "\n1 / 0\n")
    with pytest.raises(UsageError, match="ZeroDivisionError"):
        searchfile.load(folder / "search.yaml")
    (folder / "mine.py").write_text(EXAMPLE)
    assert searchfile.load(folder / "search.yaml").blocks


def test_a_file_may_begin_with_a_byte_order_mark_and_prints_to_stderr(folder, capsys):
    (folder / "mine.py").write_text("\ufeff" + EXAMPLE + "print('read')\n", encoding="utf-8")
    searchfile.load(folder / "search.yaml")
    assert capsys.readouterr() == ("", "read\n")


def test_a_block_that_only_looks_both_ways_is_checked_and_one_that_fits_no_model_is_reported(folder):
    (folder / "mine.py").write_text(EXAMPLE.replace("(bidirectional=False)", "(causal=False, streaming=False)"))
    assert {each.causal for each in cases(blocks.of_file(folder / "mine.py"))} == {False}
    useless = EXAMPLE.replace("(bidirectional=False)", "(causal=False, bidirectional=False)")
    (folder / "useless.py").write_text(useless.replace('"token_shift"', '"useless"'))
    (broken,) = checked(folder / "useless.py")
    assert "neither causal nor bidirectional" in broken.errors["defaults"]


def test_another_text_with_the_same_block_is_refused_in_one_process(folder):
    searchfile.load(folder / "search.yaml")
    (folder / "mine.py").write_text(EXAMPLE + "# changed\n")
    with pytest.raises(UsageError, match="start a new process"):
        searchfile.load(folder / "search.yaml")


def test_code_is_named_by_a_file_and_never_written_into_a_search_file(folder):
    (folder / "search.yaml").write_text(SEARCH.replace("[mine.py]", "{mine.py: 'raise SystemExit'}"))
    with pytest.raises(UsageError, match="must be a file or a list of files"):
        searchfile.load(folder / "search.yaml")


def test_a_worker_trains_a_block_from_its_text(tmp_path):
    work = Work(
        study="s", trial=0, rung=0, architecture=TEXT, task={"copy": {"length": 8}}, recipe={}, steps=2, horizon=2,
        seed=0, checkpoint=None, blocks={"far/mine.py": EXAMPLE},
    )  # fmt: skip
    assert run(work).failure is None
    broken = EXAMPLE.replace('"token_shift"', '"other"').replace("return self.mix * x +", "return self.gone * x +")
    failed = run(
        dataclasses.replace(work, architecture=TEXT.replace("token_shift", "other"), blocks={"far/mine.py": broken})
    ).failure
    assert failed.kind is FailureKind.BUILD_ERROR or failed.kind is FailureKind.TASK_ERROR
    assert 'File "far/mine.py"' in failed.message and "self.gone" in failed.message


def test_a_study_trains_exports_and_loads_a_block_of_its_own(forget_own_blocks, folder):
    (folder / "search.yaml").write_text(SEARCH + "runner: {inline: {process: false}}\n")
    nas.search("search.yaml")
    store, study = location.open_existing("own", None)
    with store:
        formats = ["yaml", "safetensors", "python"]
        files.write_folder(winner.winner(store, study, 0), Path("out"), formats, check=False)
        changed = searchfile.load("search.yaml").model_copy(update={"blocks": {"mine.py": EXAMPLE + "#"}})
        with pytest.raises(UsageError, match=r"The text of mine\.py has changed since the study 'own' started"):
            resolve(changed, store)
        with pytest.raises(UsageError, match=r"mine\.py is not among `blocks`, or has changed"):
            resolve(changed.model_copy(update={"blocks": {"other.py": EXAMPLE + "#"}}), store)
        resolve(changed.model_copy(update={"blocks": {"other.py": EXAMPLE}}), store)
    assert header.read(folder / "out" / "architecture.yaml")["blocks"] == {"mine.py": EXAMPLE}
    assert "class TokenShift" in (folder / "out" / "model.py").read_text()
    forget_own_blocks()  # as in a new process
    with pytest.raises(SpaceError, match="nas --blocks FILE"):
        Architecture.load(folder / "out" / "architecture.yaml")
    model = nas.load("out").model
    assert any(type(block).__name__ == "TokenShift" for block in model.modules())


def test_the_example_keeps_every_promise():
    found = checked(EXAMPLES / "own_block.py")
    assert len(found) >= 20 and {each.block for each in found} == {"token_shift"}
    assert not [each for each in found if each.errors]


def test_broken_promises_are_named(folder):
    broken = EXAMPLE.replace("shifted = torch.cat([before, x[:, :-1]], dim=1)", "shifted = x.flip(1)")
    (folder / "mine.py").write_text(broken.replace("Cost(parameters=C, ", "Cost(parameters=C + 1, "))
    wrong = {each.promise: next(iter(each.errors.values())) for each in checked(folder / "mine.py") if each.errors}
    assert "change outputs before it" in wrong["nothing of the future reaches the past"]
    said = wrong["declared parameters and flops are those of the built module"]
    assert said == "17 parameters declared, the module has 16"


def test_a_block_with_blocks_inside_is_not_checked(folder):
    source = """\
from dataclasses import dataclass
from searchspace.contract import Primitive
from searchspace.registry import Blocks, named, primitive
@dataclass(frozen=True, kw_only=True)
class Config:
    of: Blocks = named("gru")
@primitive("outer", Config)
class Outer(Primitive):
    pass
"""
    (folder / "mine.py").write_text(source)
    with pytest.raises(UsageError, match=r"contain other blocks.*outer"):
        checked(folder / "mine.py")
