"""The command line as a whole: help, exit codes, pages, completion."""

import ast
import contextlib
import gc
import re
import subprocess
import sys

import pytest

from nas.cli import app, main
from nas.cli.app import EXIT_CODES
from nas.cli.collector import uncollected
from nas.cli.reference import commands, page
from nas.config.schema import HIDDEN, Arm, Budget, Finals, Limits, Named, SearchConfig
from nas.criteria.registry import registry as criteria
from nas.registry import options
from nas.runners.registry import registry as runners
from nas.schedulers.registry import registry as schedulers
from nas.strategies.registry import registry as strategies
from nas.tasks.registry import registry as tasks
from nas.training.optimisers.registry import registry as optimisers
from nas.training.recipe import plain_options
from nas.training.schedules.registry import registry as schedules
from searchspace import zoo

REGISTRIES = (strategies, schedulers, optimisers, schedules, criteria, tasks, runners)
COMMANDS = dict(commands())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_an_example_and_json(name, nas):
    words = name.split()[1:]
    shown = nas(*words, "--help")

    assert shown.code == 0
    assert f"Example: {name}" in " ".join(COMMANDS[name].help.split())
    assert "--json" in shown.out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_and_option_says_what_it_is(name):
    silent = [each.name for each in COMMANDS[name].params if not each.help]

    assert not silent


def test_every_number_of_threads_is_one_that_torch_can_use(nas):
    some = [name for name, each in COMMANDS.items() if any(param.name == "threads" for param in each.params)]
    assert {"nas tune run", "nas tune verify", "nas profile", "nas train"} <= set(some)
    for name in some:
        arguments = [
            each.name for each in COMMANDS[name].params if each.param_type_name == "argument" and each.required
        ]
        ended = nas(*name.split()[1:], *arguments, "--threads", "100000")
        assert (ended.code, ended.out) == (2, "")
        assert re.search("'--threads': .*1024", ended.err)  # in the words of typer


SAFE = {
    "output.py",  # where text for people becomes visible
    "reference.py",  # a page of our own
    "columns.py",  # tables with colours, whose cells are visible
    "tune.py",  # a line of progress that is written again
}


def test_commands_print_through_the_module_that_escapes_control_characters(root):
    loud = [
        f"{file.relative_to(root)}:{node.lineno}"
        for file in (root / "nas" / "cli").rglob("*.py")
        if file.name not in SAFE
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "typer.echo", "sys.stdout.write")
    ]
    assert not loud, f"use say, note or print_json: {', '.join(loud)}"


def test_the_page_of_commands_is_what_the_commands_say_of_themselves(root):
    found = (root / "docs" / "commands.md").read_text(encoding="utf-8")

    assert found == page(), "run `python -m nas.cli.reference > docs/commands.md`"


def test_the_help_documents_every_exit_code(nas):
    text = " ".join(nas("--help").out.split())

    for code, meaning in EXIT_CODES.items():
        assert f"{code} {meaning}" in text


def test_an_unknown_command_is_bad_input(nas):
    ended = nas("serach")

    assert ended.code == 2
    assert ended.out == ""
    assert "serach" in ended.err


def test_an_interrupted_command_ends_with_130(nas, monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(zoo, "names", interrupted)

    ended = nas("zoo")

    assert ended.code == 130
    assert "Interrupted." in ended.err


def test_the_end_of_a_command_does_not_look_for_garbage(monkeypatch):
    last = []
    monkeypatch.setattr("atexit.register", last.append)
    monkeypatch.setattr(app, "run", lambda: None)
    main()
    assert last == [gc.freeze], "first, so that it runs after all others"


def test_what_a_command_reads_is_never_searched_for_garbage():
    before = gc.get_freeze_count()
    with contextlib.suppress(OSError), uncollected():
        read = [[] for _ in range(5000)]
        assert not gc.isenabled()
        raise OSError
    assert gc.isenabled()
    assert gc.get_freeze_count() >= before + len(read)
    assert gc.get_count()[0] < len(read)


def test_a_reader_that_goes_away_is_no_error(finished, root):
    """As in `nas status NAME | head -1`, a command that imports no torch."""
    code = (
        "import sys; from nas.cli import main; sys.argv = ['nas', 'status', 'tiny', '--storage', sys.argv[1]];"
        "sys.stdin.read(); main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, finished.storage],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=root,
    )  # fmt: skip
    process.stdout.close()  # before it prints, which it does once its stdin ends
    process.stdin.close()

    assert process.stderr.read() == b""
    assert process.wait(timeout=60) == 0
    process.stderr.close()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("nas sta", "status"),
        ("nas zoo transformer_m", "transformer_modern"),
        ("nas status ti", "tiny"),
        ("nas show ti", "tiny:"),
    ],
)
def test_a_shell_completes_commands_studies_and_architectures(line, expected, study, nas, monkeypatch):
    asked = {"_NAS_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    for name, value in asked.items():
        monkeypatch.setenv(name, value)

    assert expected in nas().out.split()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_a_script_that_asks_for_completions(shell, nas, monkeypatch):
    monkeypatch.setenv(
        "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1"
    )  # else the shell that runs the tests decides
    monkeypatch.setattr(app, "_command", app._command.__wrapped__)  # it is read when the commands are built

    assert f"_NAS_COMPLETE=complete_{shell}" in nas("--show-completion", shell).out


def test_every_key_of_a_search_file_is_documented_with_its_default(root):
    text = (root / "docs" / "search-file.md").read_text(encoding="utf-8")
    rows = {
        tuple(cell.strip() for cell in line.split("|")[1:-1][:3:2])
        for line in text.splitlines()
        if line[:3] == "| `" and line.count("|") > 4
    }

    expected = set(documented_keys())

    assert expected <= rows, f"docs/search-file.md lacks {sorted(expected - rows)}"
    short = {"`control`"}  # of `arms`; the reader writes it out
    known = {key for key, _ in expected} | short
    assert {key for key, _ in rows} == known, "docs/search-file.md has keys that are none"


def documented_keys():
    """(`key`, default) of every key that a search file may have, as the page should have it."""
    for section in (SearchConfig, Budget, Finals, Limits, Arm):
        for name, field in section.model_fields.items():
            if name not in HIDDEN:  # written by the reader, not by people
                listed = name == "blocks"  # files, which a study keeps with their texts
                yield f"`{name}`", "`[]`" if listed else default_of(field.default, required=field.is_required())
    recipe = {"optimiser": "`adamw`", "schedule": "`cosine`", "criterion": "the task's"}
    yield from ((f"`{name}`", default) for name, default in recipe.items())
    plain = options(plain_options).values()
    found = [option for each in REGISTRIES for name in each.names() for option in each.options(name).values()]
    for option in [*plain, *found]:
        yield f"`{option.name}`", default_of(option.default, required=option.default is option.empty)


def default_of(value, required=False):
    if required:
        return "required"
    if value is None:
        return "none"
    if isinstance(value, Named):
        return f"`{value.name}`"
    if isinstance(value, Finals | Limits):
        return "`{}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{list(value) if isinstance(value, tuple) else value}`"


def test_every_command_that_writes_a_file_accepts_out():
    app.discover()
    options = {
        name: {word for each in found.params for word in each.opts} for name, found in app.command().commands.items()
    }

    assert not [name for name, words in options.items() if "--output" in words and "--out" not in words]


def test_the_version_is_printed(nas):
    ended = nas("--version")
    assert ended.code == 0 and ended.out.startswith("Tessera ")
