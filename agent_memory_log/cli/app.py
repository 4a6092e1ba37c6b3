"""The Typer application: every command registered, in the order in which help lists them.

To add a command: a module with its function, and its line in ``COMMANDS``.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from agent_memory_log.cli.errors import OutputClosed
from agent_memory_log.cli.options import StoreUrl, reflowed
from agent_memory_log.cli.output import Output

COMMANDS = {
    "demo": ("Getting started", "demo:demo"),
    "import": ("In and out", "importing:import_app"),
    "export": ("In and out", "export:export"),
    "copy": ("In and out", "copy:copy"),
    "backup": ("In and out", "backup:backup"),
    "replay": ("In and out", "replay:replay"),
    "runs": ("Looking", "runs:runs"),
    "show": ("Looking", "show:show"),
    "tail": ("Looking", "tail:tail"),
    "diff": ("Looking", "diff:diff"),
    "stats": ("Looking", "stats:stats"),
    "verify": ("Looking", "verify:verify"),
    "memory": ("Remembering", "memory.app:memory_app"),
    "fork": ("Changing", "fork:fork"),
    "delete": ("Changing", "delete:delete"),
    "redact": ("Changing", "redact:redact"),
    "expire": ("Changing", "expire:expire"),
    "compact": ("Changing", "compact:compact"),
    "backends": ("Getting started", "backends:backends"),
}
"""Every command: the panel of help it stands in, and the module of this folder with its function or its group.

A module is imported when its command is run, or help lists them all: a command need not wait for the others' imports.
"""


_CONTEXT = {"help_option_names": ["--help", "-h"]}


class _Group(TyperGroup):
    """The group of all commands."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002  # the type of its context is private to typer
        """The commands as help lists them."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401  # the types are private to typer
        """Load the command of this name; for an unknown name all commands, so that typer can suggest the nearest."""
        for name in [cmd_name] if cmd_name in COMMANDS else COMMANDS:
            if name not in self.commands:
                self.commands[name] = _load_command(name, self.rich_markup_mode)
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: Any) -> object:  # noqa: ANN401  # the type of its context is private to typer
        """Run the command; a closed pipe gets past typer, which would exit with a status of its own."""
        try:
            outcome: object = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise OutputClosed from error
        return outcome


def _load_command(name: str, rich_markup_mode: Any) -> Any:  # noqa: ANN401  # the types are private to typer
    panel, target = COMMANDS[name]
    module, _, attribute = target.partition(":")
    command = getattr(import_module(f"agent_memory_log.cli.{module}"), attribute)
    app = typer.Typer(add_completion=False, rich_markup_mode=rich_markup_mode, context_settings=_CONTEXT)
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name, rich_help_panel=panel)
    else:
        app.command(name, help=reflowed(command), rich_help_panel=panel)(command)
        app.callback()(lambda: None)  # without a callback, an application of one command is that command
    group: Any = typer.main.get_command(app)
    return group.commands[name]


def _version(wanted: bool) -> None:
    if wanted:
        Output().line(f"amlog {version('agent-memory-log')}")
        raise typer.Exit


def _restore(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def build_app(*, rich_help: bool) -> typer.Typer:
    """The application; ``rich_help`` draws help for a terminal."""
    app = typer.Typer(
        name="amlog",
        cls=_Group,
        no_args_is_help=True,
        rich_markup_mode="rich" if rich_help else None,
        pretty_exceptions_enable=False,
        context_settings=_CONTEXT,
    )

    def amlog(
        ctx: typer.Context,
        *,
        store: StoreUrl = None,
        _debug: Annotated[
            bool, typer.Option("--debug", help="Show the traceback of an error, as AMLOG_DEBUG=1 does.")
        ] = False,
        _show_version: Annotated[
            bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
        ] = False,
    ) -> None:
        """The durable, typed, replayable log of what an AI agent did.

        Name the store once with AMLOG_STORE, or each time with --store: sqlite:///runs.db is a file. Run amlog demo to
        see it work.
        """
        if store:
            # As if it stood in the environment, where every command looks, until this one ends.
            saved = os.environ.get("AMLOG_STORE")
            os.environ["AMLOG_STORE"] = store
            ctx.call_on_close(lambda: _restore("AMLOG_STORE", saved))

    app.callback(help=reflowed(amlog))(amlog)
    return app
