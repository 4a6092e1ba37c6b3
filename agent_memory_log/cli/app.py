"""The Typer application: every command registered, in the order in which help lists them.

To add a command: a module with its function, and its line in ``COMMANDS``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from agent_memory_log.cli.backends import backends
from agent_memory_log.cli.backup import backup
from agent_memory_log.cli.compact import compact
from agent_memory_log.cli.copy import copy
from agent_memory_log.cli.delete import delete
from agent_memory_log.cli.demo import demo
from agent_memory_log.cli.diff import diff
from agent_memory_log.cli.errors import OutputClosed
from agent_memory_log.cli.expire import expire
from agent_memory_log.cli.export import export
from agent_memory_log.cli.fork import fork
from agent_memory_log.cli.importing import import_app
from agent_memory_log.cli.memory.app import memory_app
from agent_memory_log.cli.options import StoreUrl, reflowed
from agent_memory_log.cli.output import Output
from agent_memory_log.cli.redact import redact
from agent_memory_log.cli.replay import replay
from agent_memory_log.cli.runs import runs
from agent_memory_log.cli.show import show
from agent_memory_log.cli.stats import stats
from agent_memory_log.cli.tail import tail
from agent_memory_log.cli.verify import verify

COMMANDS: dict[str, tuple[str, Callable[..., None] | typer.Typer]] = {
    "demo": ("Getting started", demo),
    "import": ("In and out", import_app),
    "export": ("In and out", export),
    "copy": ("In and out", copy),
    "backup": ("In and out", backup),
    "replay": ("In and out", replay),
    "runs": ("Looking", runs),
    "show": ("Looking", show),
    "tail": ("Looking", tail),
    "diff": ("Looking", diff),
    "stats": ("Looking", stats),
    "verify": ("Looking", verify),
    "memory": ("Remembering", memory_app),
    "fork": ("Changing", fork),
    "delete": ("Changing", delete),
    "redact": ("Changing", redact),
    "expire": ("Changing", expire),
    "compact": ("Changing", compact),
    "backends": ("Getting started", backends),
}
"""Every command: the panel of help it stands in, and its function or its group of commands."""


class _Group(TyperGroup):
    """The group of all commands."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401  # the type of its context is private to typer
        """The commands as help lists them: typer itself would put groups last."""
        names: list[str] = super().list_commands(ctx)
        return sorted(names, key=list(COMMANDS).index)

    def invoke(self, ctx: Any) -> object:  # noqa: ANN401  # the type of its context is private to typer
        """Run the command; a closed pipe gets past typer, which would exit with a status of its own."""
        try:
            outcome: object = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise OutputClosed from error
        return outcome


def _version(asked: bool) -> None:
    if asked:
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
        context_settings={"help_option_names": ["--help", "-h"]},
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
    for name, (panel, command) in COMMANDS.items():
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, rich_help_panel=panel)
        else:
            app.command(name, help=reflowed(command), rich_help_panel=panel)(command)
    return app
