"""Writes ``docs/cli.md`` from the commands themselves: ``python docs/generate_cli.py``, or ``--check`` to only compare.

What is said there about a command stands in its docstring; what holds for all of them stands here.
"""

# ruff: noqa: INP001  # docs is a folder of pages, not a package

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

import typer

from agent_memory_log.cli.app import build_app

PAGE = Path(__file__).with_name("cli.md")

_INTRODUCTION = """\
# `amlog`

<!-- Written by docs/generate_cli.py from the commands: change those, and run it again. -->

`pip install 'agent-memory-log[cli]'` installs it; `python -m agent_memory_log.cli` is the same.

- **Store**: `--store URL`, before the command or after it, or `AMLOG_STORE` in the environment. There is no default.
- **Runs** are named `AGENT/RUN`, or `RUN` alone where only one agent has it. Inside a part, `/` is written `%2F` and
  `%` is written `%25`; the names that commands print can be given back to them as they are.
- **Output** is laid out and coloured on a terminal (`NO_COLOR` is honoured). Anywhere else it is plain, whole and one
  line for each event or row. Control, bidirectional and invisible characters in what was logged are shown escaped,
  everywhere; JSON on a terminal has them as `\\u` escapes, which mean the same.
- **JSON**: `--json` gives one document, and for `show` and `tail` a line for each event. Keys stay; new ones may come.
- **Status**: 0; 1 for an error or a failed check; 2 for a wrong use; 130 after Ctrl-C, 143
  after SIGTERM, 129 after SIGHUP; 141 when the reader of the output has gone. An error is one line on standard error;
  `--debug` or `AMLOG_DEBUG=1` shows where it comes from.
- **Files** are written whole or not at all. An output that is a file of the store, by any spelling, symlink or hard
  link, or any SQLite database, is refused; so is standard output redirected into one.
- **Nothing is lost by default**: `delete`, `redact`, `expire` and `memory forget` ask, and off a terminal need `--yes`.
"""


def build_page() -> str:
    """The whole page."""
    root = typer.main.get_command(build_app(rich_help=False))
    context = root.make_context("amlog", [], resilient_parsing=True)
    return "\n".join([_INTRODUCTION, *_group(root, context, "amlog")])


def _group(group: Any, context: Any, name: str) -> list[str]:  # noqa: ANN401  # typer keeps the types of commands private
    parts: list[str] = []
    for command_name in group.list_commands(context):
        command = group.get_command(context, command_name)
        full_name = f"{name} {command_name}"
        if hasattr(command, "list_commands"):
            parts += _group(command, context, full_name)
        else:
            parts += _command(command, command.make_context(full_name, [], resilient_parsing=True), full_name)
    return parts


def _command(command: Any, context: Any, name: str) -> list[str]:  # noqa: ANN401  # as above
    params = [param for param in command.get_params(context) if param.name != "help"]
    arguments = [_argument(param) for param in params if param.param_type_name == "argument"]
    paragraphs = ["\n".join(textwrap.wrap(part, 120)) for part in command.help.split("\n\n")]
    usage = " ".join(["$", name, *arguments, "[OPTIONS]"])
    lines = [f"## `{name}`", "", "\n\n".join(paragraphs), "", "```console", usage, "```", "", "| | |", "|---|---|"]
    return [*lines, *(f"| `{_signature(param)}` | {_meaning(param)} |" for param in params), ""]


def _argument(param: Any) -> str:  # noqa: ANN401  # as above
    shown = param.metavar + ("..." if param.nargs == -1 else "")
    return shown if param.required else f"[{shown}]"


def _signature(param: Any) -> str:  # noqa: ANN401  # as above
    if param.param_type_name == "argument":
        return _argument(param)
    value = "" if param.is_flag else f" {param.metavar}"
    return ", ".join(sorted(param.opts, key=len, reverse=True)) + value


def _meaning(param: Any) -> str:  # noqa: ANN401  # as above
    text = str(param.help).replace("|", "\\|")
    if param.param_type_name == "option" and param.required:
        text += " Required."
    if param.envvar:
        text += f" Default: `{param.envvar}` of the environment."
    elif isinstance(param.default, int) and param.default > 1:
        text += f" Default: {param.default}."
    return text


def main(arguments: list[str]) -> int:
    """Write the page, or with ``--check`` say whether it is as it would be written."""
    page = build_page()
    if arguments == ["--check"]:
        if PAGE.exists() and PAGE.read_text("utf-8") == page:
            return 0
        print("docs/cli.md is not what the commands say: run python docs/generate_cli.py", file=sys.stderr)  # noqa: T201  # a script
        return 1
    PAGE.write_text(page, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
