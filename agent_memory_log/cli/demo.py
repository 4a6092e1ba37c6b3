"""``amlog demo``: kills a writer process and shows that the log keeps every acknowledged event."""

from __future__ import annotations

import io
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from agent_memory_log.backend_kit.urls import without_credentials
from agent_memory_log.cli.demo_writer import Acknowledged, SampleRun, sample_run
from agent_memory_log.cli.errors import CommandFailed, UsageProblem
from agent_memory_log.cli.options import AsJson, run_async
from agent_memory_log.cli.outfile import check_streams
from agent_memory_log.cli.output import BAD, BOLD, DIM, GOOD, NAME, Column, Output, Segment, progress
from agent_memory_log.cli.run_names import run_name
from agent_memory_log.cli.show import write_run
from agent_memory_log.cli.stopping import Graceful
from agent_memory_log.cli.terminal_text import size
from agent_memory_log.events.event import Event, same_body
from agent_memory_log.opening import open_store
from agent_memory_log.reader import Reader
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import Store
from agent_memory_log.transfer.jsonl import export_store, import_jsonl
from agent_memory_log.transfer.verifying import verify
from agent_memory_log.wording import counted

_PAUSE_BEFORE_KILL = 0.025
_PAUSE_AFTER = 0.01


class Check(msgspec.Struct, frozen=True, rename={"details": "found"}):
    """One check of the demo. The encoded names are the JSON keys."""

    check: str
    ok: bool
    details: str


class _Written(msgspec.Struct, frozen=True):
    """The lines that a writer process printed before it ended, its exit status and its process id."""

    acknowledged: list[Acknowledged]
    status: int
    process: int


def demo(
    *,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="URL",
            help="URL of an empty store, such as sqlite:///demo.db. Default: a new file in a temporary folder.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show that the log survives when its writer is killed.

    A process appends a sample run event by event and is killed halfway. The file is opened again. It must contain every
    acknowledged event, and no partial event. Then the process runs again with all events, and must store no event
    twice. The demo needs no network.

    With --json: an object with ok, store and checks. Each check has check, ok and found.
    """
    url = store or f"sqlite:///{tempfile.mkdtemp(prefix='amlog-demo-')}/demo.db"
    if url.startswith("memory:"):
        raise UsageProblem("the demo needs a store that outlives its process, such as sqlite:///demo.db")
    check_streams(url)
    sample = sample_run()
    if run_async(_load(url, sample)).version:
        raise CommandFailed("the store already contains the demo's run: give an empty store")
    output = Output()
    with Graceful():  # a signal raises KeyboardInterrupt, so that this process can kill the writer first
        checks = _play(Output(io.StringIO()) if as_json else output, url, sample)
    ok = all(check.ok for check in checks)
    if as_json:
        output.json({"ok": ok, "store": without_credentials(url), "checks": checks})
    if not ok:
        raise typer.Exit(1)


def _play(output: Output, url: str, sample: SampleRun) -> list[Check]:
    """Play the acts of the demo, describe each, and return all checks."""
    total = len(sample.events)
    output.heading("amlog demo", without_credentials(url))

    _begin(output, 1, f"A process appends the {total} events of an agent's run, one by one")
    killed = _write(url, total, _PAUSE_BEFORE_KILL, kill_after=total // 2)
    death = check_killed(killed, total)
    output.line("   ", (f"{output.cross} ", BAD), f"killed: process {killed.process}, {death.details}")

    _begin(output, 2, "The file is opened again")
    stored = run_async(_load(url, sample)).log
    survival = check_survival(sample.events, stored, killed.acknowledged)
    _write_checks(output, survival)

    _begin(output, 3, f"The process runs again with all {total} events")
    second = check_second(_write(url, total, _PAUSE_AFTER), total, missing=total - len(stored))
    _write_checks(output, [second])

    _begin(output, 4, "The agent's run")
    output.line("")
    write_run(output, run_async(_load(url, sample)))

    _begin(output, 5, "The results")
    checks = [death, *survival, second, *run_async(_check_store(url, sample))]
    output.table(
        (Column(""), Column("check"), Column("details", DIM)),
        [(_sign(output, check), check.check, check.details) for check in checks],
    )
    _suggest(output, url, run_name(sample.agent, sample.run))
    return checks


def _begin(output: Output, act: int, title: str) -> None:
    output.line("")
    output.line((f"{act}  ", NAME), (title, BOLD))
    output.flush()


def _sign(output: Output, check: Check) -> Segment:
    return (output.tick, GOOD) if check.ok else (output.cross, BAD)


def _write_checks(output: Output, checks: Sequence[Check]) -> None:
    for check in checks:
        output.line("   ", _sign(output, check), f" {check.check}", (f"   {check.details}", DIM))


def _suggest(output: Output, url: str, name: str) -> None:
    """Suggest the next commands, in a form that can be copied to the shell."""
    program = sys.argv[0] if Path(sys.argv[0]).name == "amlog" else f"{sys.executable} -m agent_memory_log.cli"
    program = "amlog" if shutil.which("amlog") else program
    commands = {
        "runs": "list the runs",
        f"show {name} --full": "show all details of this run",
        "export --all -o runs.jsonl": "write all runs to a text file",
    }
    width = max(map(len, commands))
    output.line("")
    output.line(("Try next", BOLD), (f", with AMLOG_STORE={without_credentials(url)}", DIM))
    for command, purpose in commands.items():
        output.line("   ", (f"{program} {command:<{width}}", NAME), (f"   {purpose}", DIM))


def _write(url: str, total: int, pause: float, *, kill_after: int | None = None) -> _Written:
    """Run a writer process to its end, or kill it after it has acknowledged ``kill_after`` events."""
    process = subprocess.Popen(  # noqa: S603  # runs a module of this package, without a shell
        [sys.executable, "-m", "agent_memory_log.cli.demo_writer", str(pause)],
        env={**os.environ, "AMLOG_STORE": url},  # the URL may hold a password, and other users can read arguments
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C must reach only this process, which then kills the writer
    )
    decoder = msgspec.json.Decoder(Acknowledged)
    acknowledged: list[Acknowledged] = []
    assert process.stdout is not None  # noqa: S101  # Popen's type does not know that it is a pipe
    with process, progress("appending", total) as advance:
        try:
            for line in process.stdout:
                if not line.endswith(b"\n"):
                    break  # the writer died while it wrote this line, so the event is not acknowledged
                acknowledged.append(decoder.decode(line))
                advance()
                if len(acknowledged) == kill_after:
                    time.sleep(random.uniform(0, 2 * pause))  # noqa: S311  # kills at any moment of an append
                    process.kill()
        finally:
            process.kill()
    return _Written(acknowledged, process.returncode, process.pid)


async def _load(url: str, sample: SampleRun) -> Snapshot:
    async with open_store(url) as store:
        return await store.load_run(sample.agent, sample.run)


def check_killed(written: _Written, total: int) -> Check:
    """Check that the writer was killed before its last event. Raises ``CommandFailed`` if it was not killed."""
    if written.status >= 0 and sys.platform != "win32":
        raise CommandFailed(f"the writer ended with status {written.status} before it was killed")
    cause = "signal 9" if written.status == -signal.SIGKILL else f"status {written.status}"
    count = len(written.acknowledged)
    return Check("the writer was killed", count < total, f"{cause} after {count} of {total} events")


def check_survival(sent: Sequence[Event], stored: Sequence[Event], acknowledged: Sequence[Acknowledged]) -> list[Check]:
    """Compare the stored events with the acknowledged events and the sent events.

    The writer may have died between storing an event and acknowledging it, so one more event may be stored.
    """
    seqs = {event.event_id: event.seq for event in stored}
    survived = sum(seqs.get(line.event_id) == line.seq for line in acknowledged)
    more = len(stored) - survived
    bodies = {event.event_id: event for event in sent}
    partial = [
        event for event in stored if event.event_id not in bodies or not same_body(event, bodies[event.event_id])
    ]
    return [
        Check(
            "acknowledged events survived",
            survived == len(acknowledged) and more in (0, 1),
            f"{survived} of {len(acknowledged)}" + (f", and {more} not acknowledged yet" if more else ""),
        ),
        Check("no event is partial", not partial, f"{len(stored)} stored events compared with the sent events"),
    ]


def check_second(written: _Written, total: int, *, missing: int) -> Check:
    """Check that the second writer stored exactly the missing events. Raises ``CommandFailed`` if it failed."""
    if written.status:
        raise CommandFailed(f"the second writer ended with status {written.status}")
    new = sum(line.inserted for line in written.acknowledged)
    count = len(written.acknowledged)
    return Check(
        "the second writer stored only the missing events",
        new == missing and count == total,
        f"{new} new, {count - new} already stored",
    )


async def _check_store(url: str, sample: SampleRun) -> list[Check]:
    async with open_store(url) as store:
        return await check_whole(store, sample)


async def check_whole(store: Store, sample: SampleRun) -> list[Check]:
    """Check that the run is complete, ordered and readable, and that export and import lose nothing."""
    snapshot = await store.load_run(sample.agent, sample.run)
    sent, stored = ([event.event_id for event in events] for events in (sample.events, snapshot.log))
    reader = Reader(snapshot)
    calls, waiting = len(reader.tool_calls()), len(reader.open_tool_calls())
    verdict = await verify(store)
    exported = [line async for line in export_store(store)]
    async with open_store("memory:") as other:
        await import_jsonl(other, exported)
        again = [line async for line in export_store(other)]
    return [
        Check("every event is stored once, in order", stored == sent, f"{len(stored)} of {len(sent)}"),
        Check(
            "seqs have no gaps, payloads decode",
            verdict.ok,
            f"{counted(verdict.events, 'event')}, {counted(verdict.errors, 'error')}",
        ),
        Check("tool calls have their results", not waiting, f"{calls - waiting} of {calls}"),
        Check("export, import, export: same bytes", exported == again, size(sum(map(len, exported)))),
    ]
