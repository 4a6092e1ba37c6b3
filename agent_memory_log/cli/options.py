"""The options and arguments that several commands share, and what opens the store they name."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from typing import Annotated, TypeVar

import typer

from agent_memory_log.cli import stopping
from agent_memory_log.cli.errors import CommandFailed, UsageProblem
from agent_memory_log.cli.outfile import check_streams
from agent_memory_log.cli.terminal_text import one_line
from agent_memory_log.events.event import parse_timestamp
from agent_memory_log.opening import OpeningStore, open_store, store_files
from agent_memory_log.store import Store

_Result = TypeVar("_Result")

_ANSWERS: dict[str | None, bool] = {"y": True, "yes": True, "n": False, "no": False, "": False}

StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="AMLOG_STORE",
        metavar="URL",
        help="The store, such as sqlite:///runs.db.",
        show_default=False,
    ),
]

AsJson = Annotated[bool, typer.Option("--json", help="Write JSON, with keys that stay.")]

RunName = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="AGENT/RUN, or RUN alone where only one agent has it; / and % inside a part are written %2F and %25.",
        show_default=False,
    ),
]

AgentName = Annotated[
    str | None, typer.Option("--agent", metavar="NAME", help="Only the runs of this agent.", show_default=False)
]

Reserved = Annotated[bool, typer.Option("--all", help="Also the library's own agents, which begin with @.")]

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def store_url(url: str | None) -> str:
    """The URL that was given. Raises ``UsageProblem`` saying what to give."""
    if not url:
        raise UsageProblem("no store: give --store URL or set AMLOG_STORE, as in AMLOG_STORE=sqlite:///runs.db")
    return url


def scheme(url: str | None) -> str:
    """The scheme of the URL that was given, which says what kind of store it is."""
    return store_url(url).split(":", 1)[0]


def open_existing(url: str | None) -> OpeningStore:
    """Open the store that was given, to look at what is there. Raises ``CommandFailed`` where there is no file.

    Opening a store of files creates them, and a mistyped name should be an error and not an empty store.
    """
    files = store_files(store_url(url))
    if files and not files[0].exists():
        raise CommandFailed(f"{files[0]}: no such file; amlog import creates one")
    return open_or_create(url)


def open_or_create(url: str | None) -> OpeningStore:
    """Open the store that was given, to put something in."""
    url = store_url(url)
    check_streams(url)
    return open_store(url)


def with_store(url: str | None, work: Callable[[Store], Awaitable[_Result]]) -> _Result:
    """Open the store that was given, as ``open_existing`` does, do some work with it, and close it."""

    async def opened() -> _Result:
        async with open_existing(url) as store:
            return await work(store)

    return run_async(opened())


def run_async(coroutine: Coroutine[object, object, _Result]) -> _Result:
    """Run a command's coroutine to its end; a signal cancels it, and is an interrupt when it has cleaned up."""

    async def stoppable() -> _Result:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def cancel() -> None:
            if task is not None:
                loop.call_soon_threadsafe(task.cancel)

        with stopping.Graceful(cancel):
            return await coroutine

    try:
        return asyncio.run(stoppable())
    except asyncio.CancelledError as error:
        raise KeyboardInterrupt from error


def confirmed(question: str, *, yes: bool) -> None:
    """Ask before something is lost. Raises ``typer.Abort`` for no, ``UsageProblem`` where there is nobody to ask."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageProblem(f"{question} Give --yes to say so, as there is no terminal to ask on")
    with stopping.Graceful():  # the event loop waits for the answer too, and could not be asked to stop
        try:
            answer = _ask(one_line(question))
        except KeyboardInterrupt:
            raise typer.Abort from None
    if not answer:
        raise typer.Abort


def _ask(question: str) -> bool:
    answer: str | None = None
    while answer not in _ANSWERS:
        typer.echo(f"{question} [y/N]: ", nl=False, err=True)
        stopping.wait_for_input()
        line = sys.stdin.readline()
        if not line:  # the terminal has closed
            return False
        answer = line.strip().casefold()
    return _ANSWERS[answer]


def instant(option: str, text: str) -> datetime:
    """The time that an option was given, in UTC. Raises ``UsageProblem`` naming the option."""
    try:
        return parse_timestamp(text)
    except (ValueError, OverflowError) as error:
        raise UsageProblem(f"{option} {one_line(text)!r}: {error}") from error


def reflowed(command: Callable[..., None]) -> str:
    """A command's help with its paragraphs on one line each: where they break is for the terminal to say."""
    return "\n\n".join(" ".join(part.split()) for part in (inspect.getdoc(command) or "").split("\n\n"))
