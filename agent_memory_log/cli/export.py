"""``amlog export``: runs as JSONL, losslessly."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from agent_memory_log.cli.errors import CommandFailed, UsageProblem
from agent_memory_log.cli.names import each_run, existing_run
from agent_memory_log.cli.options import AgentName, StoreUrl, open_existing, run_async
from agent_memory_log.cli.output import Output, note, progress
from agent_memory_log.cli.text import counted, safe_json, size
from agent_memory_log.jsonl import export_run, export_store
from agent_memory_log.store import Store


def export(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="AGENT/RUN or RUN; leave out with --all.", show_default=False)
    ] = None,
    *,
    store: StoreUrl = None,
    everything: Annotated[bool, typer.Option("--all", help="Every run of the store, or of --agent.")] = False,
    reserved: Annotated[bool, typer.Option("--reserved", help="With --all: also the library's own agents.")] = False,
    agent: AgentName = None,
    to: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write to this file, whole or not at all.", show_default=False
        ),
    ] = None,
) -> None:
    """Write runs as JSONL, losslessly.

    A header for each run and a line for each event, from which import jsonl makes the same run. Exporting, importing
    and exporting again gives the same bytes.
    """
    if (run is None) != (everything or agent is not None):
        raise UsageProblem("give either a RUN, or --all, or --agent NAME for every run of one agent")
    run_async(_export(store, run, agent, to, reserved=reserved))


async def _export(url: str | None, name: str | None, agent: str | None, to: Path | None, *, reserved: bool) -> None:
    async with open_existing(url) as store:
        lines, runs, events = await _source(store, name, agent, reserved=reserved)
        with _writer(to) as write, progress("exporting", events) as advance:
            written = 0
            async for line in lines:
                write(line)
                written += len(line)
                advance()
        if to is not None and sys.stderr.isatty():
            note(f"wrote {counted(runs, 'run')}, {counted(events, 'event')}, {size(written)} to {to}")


async def _source(
    store: Store, name: str | None, agent: str | None, *, reserved: bool
) -> tuple[AsyncIterator[bytes], int, int]:
    """The lines to write, and how many runs and events there are about."""
    if name is not None:
        info = await existing_run(store, name)
        return export_run(store, info.agent, info.run), 1, info.event_count
    counts = [info.event_count async for info in each_run(store, agent, reserved=reserved)]
    if not counts and agent is not None:
        raise CommandFailed(f"no runs of the agent {agent!r}: see amlog runs")
    return export_store(store, agent=agent, include_reserved=reserved), len(counts), sum(counts)


@contextmanager
def _writer(to: Path | None) -> Generator[Callable[[bytes], object]]:
    """Something to write bytes to: standard output, or a file that takes its name when all is in it."""
    if to is None:
        output = Output()
        if output.terminal:
            yield lambda line: output.stream.write(safe_json(line.decode()))
        else:
            output.flush()
            yield sys.stdout.buffer.write
            sys.stdout.buffer.flush()
        return
    if to.exists() and not to.is_file():
        with to.open("wb") as special:  # a device or a named pipe cannot be replaced, and has nothing to lose
            yield special.write
        return
    target = to.resolve()
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name[:100]}.", delete=False) as file:
        try:
            yield file.write
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, _permissions(target))  # noqa: PTH101  # the temporary file's name is text
            os.replace(file.name, target)  # noqa: PTH105  # as above
        except BaseException:
            os.unlink(file.name)  # noqa: PTH108  # as above
            raise


def _permissions(target: Path) -> int:
    """Those of the file to replace, or of any new file."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
