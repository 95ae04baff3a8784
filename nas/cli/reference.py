"""Writes the page of all commands from their help texts: `python -m nas.cli.reference > docs/commands.md`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nas.cli.app import EXIT_CODES, command, discover

HEAD = """\
# Commands

This page lists every command with its arguments and options; `nas COMMAND --help` prints the same text. Results go to
stdout, everything else to stderr, and `--json` prints results as JSON. `nas --install-completion` installs completion
of commands, studies and architectures; `nas --version` prints the version.

`ARCHITECTURE` is a file, a name of the zoo (`nas zoo`), or `STUDY:TRIAL`, as in `quickstart:17`. A trial of the
finals is written `quickstart:final-2`. The database of a study is the one that `--storage` names, else `$NAS_STORAGE`,
else `runs/STUDY.db` in the current folder. `nas search` and `nas plan` prefer the `storage` of the search file to
`$NAS_STORAGE`.

`python -m nas.cli.reference > docs/commands.md` writes this page from the help texts; a test compares the two.
"""
EVERYWHERE = {
    "as_json": "`--json` prints JSON.",
    "storage": "`--storage URL` names the study database.",
}


def page() -> str:
    """The page as Markdown."""
    discover()
    parts = [HEAD, "| exit code | meaning |\n|---|---|"]
    parts += [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    for name, each in commands():
        parts.append("\n" + _section(name, each))
    return "\n".join(parts) + "\n"


def commands() -> Iterator[tuple[str, Any]]:
    """Every command that is not hidden, with its whole name, such as `nas space`."""
    discover()
    yield from _below("nas", command())


def _below(name: str, group: Any) -> Iterator[tuple[str, Any]]:
    for word, each in sorted(group.commands.items()):
        if hasattr(each, "commands"):
            yield from _below(f"{name} {word}", each)
        elif not each.hidden:
            yield f"{name} {word}", each


def _section(name: str, command: Any) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and each.name not in EVERYWHERE]
    usage = " ".join([name, *(f"[{_metavar(each)}]" if not each.required else _metavar(each) for each in arguments)])
    description, _, example = command.help.partition("Example: ")
    lines = [f"## {name}", "", " ".join(description.split()), "", "```sh", f"{usage} [OPTIONS]"]
    lines += [f"# for example\n{example.strip()}", "```", ""]
    rows = [f"| `{_metavar(each)}` | {each.help} | |" for each in arguments]
    rows += [f"| `{', '.join(each.opts)}` | {each.help} | {_default(each)} |" for each in options]
    if rows:
        lines += ["| | | default |", "|---|---|---|", *rows, ""]
    shared = [text for key, text in EVERYWHERE.items() if key in {each.name for each in command.params}]
    return "\n".join([*lines, " ".join(shared)])


def _metavar(argument: Any) -> str:
    return argument.metavar or argument.name.upper()


def _default(option: Any) -> str:
    if option.required:
        return "required"
    return "" if option.default is None or option.is_flag else f"`{option.default}`"


if __name__ == "__main__":
    print(page(), end="")
