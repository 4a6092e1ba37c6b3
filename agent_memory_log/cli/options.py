"""The options and arguments that several commands share, and the functions that open a store and ask for consent."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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
        help="URL of the store, such as sqlite:///runs.db.",
        show_default=False,
    ),
]

AsJson = Annotated[bool, typer.Option("--json", help="Write JSON. Its keys are stable.")]

RunName = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="AGENT/RUN, or RUN if only one agent has a run of that name. Write %2F for / and %25 for % in a name.",
        show_default=False,
    ),
]

AgentName = Annotated[
    str | None, typer.Option("--agent", metavar="NAME", help="Only the runs of this agent.", show_default=False)
]

Reserved = Annotated[bool, typer.Option("--all", help="Include the library's own agents. Their names begin with @.")]

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def store_url(url: str | None) -> str:
    """Return ``url``. Raises ``UsageProblem`` if it is missing."""
    if not url:
        raise UsageProblem("no store: give --store URL or set AMLOG_STORE, for example AMLOG_STORE=sqlite:///runs.db")
    return url


def scheme(url: str | None) -> str:
    """Return the scheme of a store's URL, such as ``sqlite``."""
    return store_url(url).split(":", 1)[0]


def is_of_server(url: str) -> bool:
    """Return whether the URL of a store is that of a server."""
    return scheme(url).lower() in ("http", "https")


def open_existing(url: str | None, *, creator: str = "amlog import") -> OpeningStore:
    """Open a store that must exist. Raises ``CommandFailed`` if its file is missing.

    ``open_store`` creates a missing file. A mistyped file name must be an error here, not an empty store. ``creator``
    is the command that the message advises.
    """
    files = store_files(store_url(url))
    if files and not files[0].exists():
        raise CommandFailed(f"{files[0]}: no such file; check the URL, or create the store with {creator}")
    return open_or_create(url)


def open_or_create(url: str | None) -> OpeningStore:
    """Open a store to write to it. Creates its file if needed."""
    url = store_url(url)
    check_streams(url)
    return open_store(url)


def with_store(
    url: str | None, work: Callable[[Store], Awaitable[_Result]], *, creator: str = "amlog import"
) -> _Result:
    """Open an existing store, run ``work`` on it, close it, and return the result. See ``open_existing``."""

    async def opened() -> _Result:
        async with open_existing(url, creator=creator) as store:
            return await work(store)

    return run_async(opened())


def run_async(coroutine: Coroutine[object, object, _Result]) -> _Result:
    """Run a command's coroutine and return its result.

    A signal cancels the coroutine. Raises ``KeyboardInterrupt`` after the coroutine has cleaned up.
    """

    async def stoppable() -> _Result:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def cancel() -> None:
            if task is not None:
                loop.call_soon_threadsafe(task.cancel)

        with stopping.Graceful(cancel), _signals_wake(loop):
            try:
                return await coroutine
            except asyncio.CancelledError:
                # The loop waits for the threads of its executor, and one may wait for the answer of a model.
                loop.set_default_executor(ThreadPoolExecutor(1))
                raise

    try:
        return asyncio.run(stoppable())
    except asyncio.CancelledError as error:
        raise KeyboardInterrupt from error


@contextmanager
def _signals_wake(loop: asyncio.AbstractEventLoop) -> Generator[None]:
    """Let a signal end the loop's wait for events, so that its handler runs at once."""
    if os.name == "nt":  # on Windows, the loop does this itself
        yield
        return
    with stopping.SignalPipe() as receiver:
        loop.add_reader(receiver, os.read, receiver, 1)
        try:
            yield
        finally:
            loop.remove_reader(receiver)


def confirmed(question: str, *, yes: bool) -> None:
    """Ask the user to confirm. Raises ``typer.Abort`` for no, ``UsageProblem`` if standard input is no terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageProblem(f"{question} There is no terminal to ask on; confirm with --yes")
    with stopping.Graceful():  # the question blocks the event loop, so a signal could not cancel the task
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
    """Parse the time given to ``option`` and return it in UTC. Raises ``UsageProblem`` for any other text."""
    try:
        return parse_timestamp(text)
    except (ValueError, OverflowError) as error:
        raise UsageProblem(f"{option} {one_line(text)!r}: {error}") from error


def reflowed(command: Callable[..., None]) -> str:
    """Return the docstring of a command with each paragraph on one line, because the terminal wraps the text."""
    return "\n\n".join(" ".join(part.split()) for part in (inspect.getdoc(command) or "").split("\n\n"))
