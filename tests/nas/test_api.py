"""`import nas`: what it offers, and what each function takes."""

import inspect
from pathlib import Path

import pytest

import nas
from nas.errors import StoreError, UsageError
from searchspace.errors import SpaceError
from searchspace.model.architecture import Architecture

TEXT = "kind: decoder\nwidth: 8\nvocabulary: 16\nbody: [feed_forward]\n"
SEARCH = """
study: small
space: {kind: decoder, width: !choice [8, 16], vocabulary: 256, body: [feed_forward]}
task: {language_model: {length: 8, batch: 2, evaluation: 64}}
objectives: [bits_per_byte, flops]
strategy: random
scheduler: {full: {steps: 1}}
runner: {inline: {process: false}}
budget: {trials: 2}
checkpoints: null
"""


def test_dir_lists_what_is_public():
    assert dir(nas) == ["build", "export", "load", "open_study", "search"]


@pytest.mark.parametrize("name", ["build", "export", "open_study", "search"])
def test_every_option_is_named_typed_and_documented(name):
    function = getattr(nas, name)

    for option in inspect.signature(function).parameters.values():
        assert option.kind is not option.VAR_KEYWORD
        assert option.annotation is not option.empty
        assert option.name in function.__doc__


def test_builds_an_architecture_text_a_path_or_a_name(tmp_path):
    (tmp_path / "a.yaml").write_text(TEXT)
    given = [
        Architecture.parse(TEXT),
        TEXT,
        TEXT.replace("\n", "\r\n"),
        "{kind: decoder, width: 8, vocabulary: 16, body: [feed_forward]}",
    ]
    with pytest.raises(SpaceError, match="decoder needs 'width'"):
        nas.build("kind: decoder")
    given += [tmp_path / "a.yaml", str(tmp_path / "a.yaml")]

    sizes = {sum(weight.numel() for weight in nas.build(each).parameters()) for each in given}

    assert len(sizes) == 1
    assert nas.build("primer:tiny")
    with pytest.raises(UsageError, match="Did you mean 'primer'"):
        nas.build("primr")


def test_a_search_gives_its_best_trial_its_front_and_a_short_repr(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(SEARCH)

    with nas.search("small.yaml", storage=tmp_path / "elsewhere.db", quiet=True) as result:
        assert result.verdict is None
        assert result.best in result.front
        assert repr(result).startswith(f"<Result of study 'small': best trial {result.best.number} {{'bits_per_byte': ")
    assert (tmp_path / "elsewhere.db").exists()


@pytest.mark.parametrize("config", [5, {"study": "small"}, "", None])
def test_a_search_of_something_else_says_what_is_expected(config):
    with pytest.raises(UsageError, match=r"expects the path of a search file, or a SearchConfig .* but got"):
        nas.search(config)


@pytest.mark.parametrize("text", [SEARCH, "study: small"])
def test_the_text_of_a_search_file_in_place_of_its_path_is_explained(text):
    with pytest.raises(UsageError, match=r"expects the path of a search file, .* but got '.*study: small") as caught:
        nas.search(text)
    assert len(str(caught.value)) < 250


def test_errors_name_the_parameters_of_python_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NAS_STORAGE", raising=False)
    with pytest.raises(StoreError, match="in Python `storage`"):
        nas.load("small:0")
    with pytest.raises(StoreError, match="in Python `storage`"):
        nas.open_study("gone.db", "small")
    Path("a.yaml").write_text(TEXT)
    with pytest.raises(UsageError, match="in Python `weights`"):
        nas.load("a.yaml")


def test_a_study_has_a_short_repr(tmp_path):
    (tmp_path / "search.yaml").write_text(SEARCH)
    with nas.open_study(tmp_path / "mine.db", "small", tmp_path / "search.yaml") as study:
        assert repr(study) == f"<Study 'small' in sqlite:///{tmp_path}/mine.db>"


@pytest.mark.parametrize("given", [None, "", 7, {}])
def test_loading_something_else_says_what_is_expected(given):
    with pytest.raises(UsageError, match="A trained model is an exported file or folder"):
        nas.load(given)


def test_a_study_of_another_name_is_refused_and_nothing_is_stored(tmp_path):
    (tmp_path / "search.yaml").write_text(SEARCH)
    for name in (None, "a b", "", "../x"):
        with pytest.raises(UsageError, match="The name of a study"):
            nas.open_study(tmp_path / "mine.db", name, tmp_path / "search.yaml")
    assert not (tmp_path / "mine.db").exists(), "once, a study that no one can read was stored"


@pytest.mark.parametrize("given", [None, "", 7, {"kind": "decoder"}])
def test_building_something_else_says_what_is_expected(given):
    with pytest.raises(UsageError, match="An architecture is an Architecture, YAML text, the path of a file"):
        nas.build(given)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("x" * 5000, "There is no file"),
        (f"{'x' * 5000}.yaml", "There is no file"),
        (f"{'x' * 5000}:0", "cannot be read: File name too long"),
        (f"{'x' * 5000}:final-1", "cannot be read: File name too long"),
    ],
    ids=["name", "file", "trial", "final"],
)
def test_a_name_that_is_no_name_of_a_file_is_explained(name, words):
    with pytest.raises((UsageError, StoreError), match=words):
        nas.build(name)


def test_the_traceback_of_a_users_error_is_short(tmp_path):
    with pytest.raises(UsageError) as caught:
        nas.search(tmp_path / "gone.yaml")
    assert len(caught.traceback) == 2 and caught.value.__suppress_context__


@pytest.mark.skipif(not Path("/proc/self/mem").is_file(), reason="needs a file whose start cannot be read")
def test_a_file_that_cannot_be_read_is_explained():
    with pytest.raises(SpaceError, match="Cannot read '/proc/self/mem': "):
        nas.build("/proc/self/mem")


def test_building_a_search_file_is_explained(tmp_path):
    (tmp_path / "search.yaml").write_text(SEARCH)
    with pytest.raises(UsageError, match=r"search\.yaml is a search file, not an architecture"):
        nas.build(tmp_path / "search.yaml")
