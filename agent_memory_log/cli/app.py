"""Builds the Typer application. ``COMMANDS`` lists every command in the order in which help shows them.

To add a command, write a module with its function and add a line to ``COMMANDS``.
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
    "import": ("Import and export", "importing:import_app"),
    "export": ("Import and export", "export:export"),
    "copy": ("Import and export", "copy:copy"),
    "backup": ("Import and export", "backup:backup"),
    "replay": ("Import and export", "replay:replay"),
    "runs": ("Inspect", "runs:runs"),
    "show": ("Inspect", "show:show"),
    "tail": ("Inspect", "tail:tail"),
    "diff": ("Inspect", "diff:diff"),
    "stats": ("Inspect", "stats:stats"),
    "verify": ("Inspect", "verify:verify"),
    "memory": ("Memory", "memory.app:memory_app"),
    "mcp": ("Serve", "mcp:mcp"),
    "serve": ("Serve", "serve:serve"),
    "processor": ("Serve", "processor:processor_app"),
    "fork": ("Change", "fork:fork"),
    "delete": ("Change", "delete:delete"),
    "redact": ("Change", "redact:redact"),
    "expire": ("Change", "expire:expire"),
    "compact": ("Change", "compact:compact"),
    "tokens": ("Server", "tokens:tokens_app"),
    "backends": ("Getting started", "backends:backends"),
}
"""The commands by name. Each has its panel in the help, and the module and name of its function or group.

A module is imported only when its command runs or when help lists all commands. This keeps every command fast to start.
"""

_CONTEXT = {"help_option_names": ["--help", "-h"]}


class _Group(TyperGroup):
    """The top-level group, which imports the module of a command when it is needed."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002  # the type of its context is private to typer
        """Return the names of the commands in the order of ``COMMANDS``."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401  # the types are private to typer
        """Load and return a command. For an unknown name, load all commands, so that typer suggests the nearest."""
        for name in [cmd_name] if cmd_name in COMMANDS else COMMANDS:
            if name not in self.commands:
                self.commands[name] = _load_command(name, self.rich_markup_mode)
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: Any) -> object:  # noqa: ANN401  # the type of its context is private to typer
        """Run the command. Raises ``OutputClosed`` for a closed pipe, for which typer would exit with status 1."""
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
        app.callback()(lambda: None)  # with one command and no callback, typer builds no group
    group: Any = typer.main.get_command(app)
    return group.commands[name]


def _version(requested: bool) -> None:
    if requested:
        Output().line(f"amlog {version('agent-memory-log')}")
        raise typer.Exit


def _restore(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def build_app(*, rich_help: bool) -> typer.Typer:
    """Build the application. With ``rich_help``, help has colours and boxes."""
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
            bool, typer.Option("--debug", help="Show the traceback of an error. AMLOG_DEBUG=1 does the same.")
        ] = False,
        _show_version: Annotated[
            bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
        ] = False,
    ) -> None:
        """Read and manage the durable, typed, replayable log of an AI agent's runs.

        Set the store with --store or with AMLOG_STORE in the environment. For example, sqlite:///runs.db is a file in
        the current folder. Start with amlog demo to see the log at work.
        """
        if store:
            # Commands read the store from the environment. The old value is restored when the command ends.
            saved = os.environ.get("AMLOG_STORE")
            os.environ["AMLOG_STORE"] = store
            ctx.call_on_close(lambda: _restore("AMLOG_STORE", saved))

    app.callback(help=reflowed(amlog))(amlog)
    return app
