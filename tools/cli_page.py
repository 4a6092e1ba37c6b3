"""Writes ``docs/cli.md`` from the commands: ``python -m tools.cli_page``. ``--check`` only compares the page.

The text about a command comes from its docstring and its options. The introduction to the page is below.
"""

from __future__ import annotations

import sys
import textwrap
from typing import Any

import typer

from agent_memory_log.cli.app import build_app
from tools.generated import ROOT, write_or_check

PAGE = ROOT / "docs" / "cli.md"

_INTRODUCTION = """\
# `amlog`

<!-- Written by tools/cli_page.py from the commands. Change the commands and run `make generate`. -->

Install the command line with `pip install 'agent-memory-log[cli]'`. `python -m agent_memory_log.cli` does the same as
`amlog`.

```console
$ amlog demo                                     # see the log at work
$ export AMLOG_STORE=sqlite:///runs.db           # set the store once
$ amlog import openai-chat chats.jsonl --agent support-bot
$ amlog runs                                     # list the runs
$ amlog show chats-0001                          # show one of them
```

- **Store**: give `--store URL` before or after the command, or set `AMLOG_STORE` in the environment. There is no
  default.
- **Runs**: a run is called `AGENT/RUN`, or `RUN` if only one agent has a run of that name. Write `%2F` for `/` and
  `%25` for `%` in the name of an agent or a run. Every command accepts the names that commands print.
- **Output**: a terminal gets layout and colours. Set `NO_COLOR` to turn the colours off. Pipes and files get plain text
  without cuts, with one line for each event or row. Control, bidirectional and invisible characters of logged text are
  always escaped. JSON on a terminal shows them as `\\u` escapes, which have the same meaning.
- **JSON**: `--json` writes one document, but `show` and `tail` write a line for each event. Keys stay the same. Later
  versions may add keys.
- **Errors**: an error is one line on standard error. `--debug` or `AMLOG_DEBUG=1` adds the traceback.
- **Files**: an output file is written completely or not at all. A command refuses to write to a file of the store or to
  any SQLite database, under any name or link. It also refuses to run if its output is redirected to such a file.
- **Confirmation**: `delete`, `redact`, `expire` and `memory forget` ask before they remove anything. If there is no
  terminal, they need `--yes`.

| Exit status | Meaning |
|---|---|
| 0 | Success. |
| 1 | An error or a failed check. |
| 2 | Wrong usage. |
| 129, 130, 143 | The command received SIGHUP, Ctrl-C or SIGTERM. |
| 141 | The reader of the output closed the pipe. |
"""


def build_page() -> str:
    """Return the text of the page."""
    root = typer.main.get_command(build_app(rich_help=False))
    context = root.make_context("amlog", [], resilient_parsing=True)
    return "\n".join([_INTRODUCTION, *_group(root, context, "amlog")])


def _group(group: Any, context: Any, name: str) -> list[str]:  # noqa: ANN401  # typer's types are private
    parts: list[str] = []
    for command_name in group.list_commands(context):
        command = group.get_command(context, command_name)
        full_name = f"{name} {command_name}"
        if hasattr(command, "list_commands"):
            parts += _group(command, context, full_name)
        else:
            parts += _command(command, command.make_context(full_name, [], resilient_parsing=True), full_name)
    return parts


def _command(command: Any, context: Any, name: str) -> list[str]:  # noqa: ANN401  # typer's types are private
    params = [param for param in command.get_params(context) if param.name != "help"]
    arguments = [_argument(param) for param in params if param.param_type_name == "argument"]
    paragraphs = ["\n".join(textwrap.wrap(part, 120)) for part in command.help.split("\n\n")]
    usage = " ".join(["$", name, *arguments, "[OPTIONS]"])
    lines = [f"## `{name}`", "", "\n\n".join(paragraphs), "", "```console", usage, "```", "", "| | |", "|---|---|"]
    return [*lines, *(f"| `{_signature(param)}` | {_meaning(param)} |" for param in params), ""]


def _argument(param: Any) -> str:  # noqa: ANN401  # typer's types are private
    name = param.metavar + ("..." if param.nargs == -1 else "")
    return name if param.required else f"[{name}]"


def _signature(param: Any) -> str:  # noqa: ANN401  # typer's types are private
    if param.param_type_name == "argument":
        return _argument(param)
    value = "" if param.is_flag else f" {param.metavar}"
    return ", ".join(sorted(param.opts, key=len, reverse=True)) + value


def _meaning(param: Any) -> str:  # noqa: ANN401  # typer's types are private
    text = str(param.help).replace("|", "\\|")
    if param.param_type_name == "option" and param.required:
        text += " Required."
    if param.envvar:
        text += f" Default: `{param.envvar}` in the environment."
    elif isinstance(param.default, int) and param.default > 1:
        text += f" Default: {param.default}."
    return text


if __name__ == "__main__":
    sys.exit(write_or_check({PAGE: build_page()}))
