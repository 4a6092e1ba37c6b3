"""``amlog processor``: gives agent loops on NATS JetStream their memory. ``processing.py`` does it, with an extra."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from agent_memory_log.cli.errors import CommandFailed
from agent_memory_log.cli.options import StoreUrl, reflowed
from agent_memory_log.cli.output import Output


def run(
    *,
    config: Annotated[Path, typer.Option("--config", metavar="FILE", help="The configuration, as JSON.")],
    store: StoreUrl = None,
    metrics: Annotated[
        int | None,
        typer.Option(
            "--metrics",
            min=1,
            max=65535,
            metavar="PORT",
            help="Show numbers for Prometheus on this port of this machine.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Give agent loops on NATS JetStream their memory until Ctrl-C or SIGTERM.

    The store is created if it does not exist. Any number of processors may share it and the work.

    A signal lets the processor finish the messages that it accepted, in at most stop_seconds of the configuration. The
    rest is done at the next start. A second signal ends it at once.

    amlog processor schema describes the configuration.
    """
    _processing().run(config, store, metrics)


def schema() -> None:
    """Print the JSON schema of the configuration, with the default of each setting."""
    output = Output()
    output.json(_processing().ProcessorSettings.json_schema())
    output.flush()


def _processing() -> ModuleType:
    try:
        from agent_memory_log.cli import processing  # noqa: PLC0415  # needs the extra nats
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("agent_memory_log"):
            raise
        raise CommandFailed("amlog processor needs the extra nats: pip install 'agent-memory-log[nats]'") from error
    return processing


processor_app = typer.Typer(
    no_args_is_help=True, help="Give agent loops on NATS JetStream their memory, with the log as the truth."
)
_COMMANDS: dict[str, Callable[..., None]] = {"run": run, "schema": schema}
for _name, _command in _COMMANDS.items():
    processor_app.command(_name, help=reflowed(_command))(_command)
