"""``amlog demo``: a log that survives the death of its writer, shown on a real process and a real signal."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from agent_memory_log.backend_kit.urls import without_credentials
from agent_memory_log.cli.demo_checks import Proof, Reopened, look_after_kill, prove_whole
from agent_memory_log.cli.demo_sample import SampleRun, sample_runs
from agent_memory_log.cli.demo_writer import Acknowledged
from agent_memory_log.cli.errors import CommandFailed, UsageProblem
from agent_memory_log.cli.names import run_name
from agent_memory_log.cli.options import AsJson, run_async
from agent_memory_log.cli.outfile import check_streams
from agent_memory_log.cli.output import BAD, BOLD, DIM, GOOD, NAME, Column, Output
from agent_memory_log.cli.show import write_run
from agent_memory_log.cli.stopping import Graceful
from agent_memory_log.opening import open_store
from agent_memory_log.snapshot import Snapshot

_PAUSE_BEFORE_KILL = 0.025
_PAUSE_AFTER = 0.01

_Seen = Callable[[Acknowledged], None]


class _Written(msgspec.Struct):
    """What a writer process said before it ended, and with what status."""

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
            help="An empty store to use, such as sqlite:///demo.db; by default a new file in a temporary folder.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Watch a log survive the death of its writer.

    A process appends sample runs event by event and is killed half way. The file is opened again, every acknowledged
    event must be there and none in part; then the same process runs again over all events, and none may be stored
    twice. Needs no network.

    With --json: ok, store, and checks, each with check, ok and found.
    """
    url = store or f"sqlite:///{tempfile.mkdtemp(prefix='amlog-demo-')}/demo.db"
    if url.startswith("memory:"):
        raise UsageProblem("the demo needs a store that outlives a process, such as sqlite:///demo.db")
    check_streams(url)
    runs = sample_runs()
    if run_async(_holds_any(url, runs)):
        raise CommandFailed("that store already holds the demo's runs: give it a new one")
    output = Output()
    with Graceful():  # the writer is a process of its own, and ends with this one
        proofs = _Quiet(url, runs).play() if as_json else _Show(output, url, runs).play()
    ok = all(proof.ok for proof in proofs)
    if as_json:
        output.json({"ok": ok, "store": without_credentials(url), "checks": proofs})
    output.flush()
    if not ok:
        raise typer.Exit(1)


class _Quiet:
    """The demo's acts, without a word."""

    def __init__(self, url: str, runs: Sequence[SampleRun]) -> None:
        self.url = url
        self.runs = runs
        self.total = sum(len(one.events) for one in runs)

    def play(self) -> list[Proof]:
        """Play all acts; what was proved."""
        killed, proof = self.kill(_ignore)
        reopened = self.reopen(killed)
        return [proof, *reopened.proofs, self.resume(reopened, _ignore), *run_async(self.prove())]

    def kill(self, seen: _Seen) -> tuple[_Written, Proof]:
        """Have a writer killed half way."""
        written = _write(self.url, _PAUSE_BEFORE_KILL, seen, kill_after=self.total // 2)
        if written.status >= 0 and sys.platform != "win32":
            raise CommandFailed(f"the writer ended with status {written.status} before it was killed")
        died = "signal 9" if written.status == -signal.SIGKILL else f"status {written.status}"
        heard = len(written.acknowledged)
        return written, Proof(
            "the writer was killed", heard < self.total, f"{died} after {heard} of {self.total} events"
        )

    def reopen(self, written: _Written) -> Reopened:
        """Open the store again and compare."""
        return run_async(_look(self.url, self.runs, written.acknowledged))

    def resume(self, reopened: Reopened, seen: _Seen) -> Proof:
        """Run the same writer over all events."""
        written = _write(self.url, _PAUSE_AFTER, seen)
        if written.status:
            raise CommandFailed(f"the second writer ended with status {written.status}")
        new = sum(one.inserted for one in written.acknowledged)
        return Proof(
            "the second writer stored only what was missing",
            new == self.total - reopened.stored and len(written.acknowledged) == self.total,
            f"{new} new, {len(written.acknowledged) - new} recognised",
        )

    async def prove(self) -> list[Proof]:
        """Check the finished store."""
        async with open_store(self.url) as store:
            return await prove_whole(store, self.runs)


class _Show(_Quiet):
    """The demo's acts, for people."""

    def __init__(self, output: Output, url: str, runs: Sequence[SampleRun]) -> None:
        super().__init__(url, runs)
        self._output = output
        self._act = 0

    def play(self) -> list[Proof]:
        """Play all acts, telling what happens; what was proved."""
        say = self._output.line
        say(("amlog demo", BOLD), (f"   {without_credentials(self.url)}", DIM))
        self._begin(f"A process appends {self.total} events of {len(self.runs)} agent runs, one by one")
        with self._bar() as seen:
            killed, proof = self.kill(seen)
        say("   ", (f"{self._output.cross} ", BAD), f"killed: process {killed.process}, {proof.found}")

        self._begin("The file is opened again")
        reopened = self.reopen(killed)
        self._tell(reopened.proofs)

        self._begin(f"The same process runs again, over all {self.total} events")
        with self._bar() as seen:
            resumed = self.resume(reopened, seen)
        self._tell([resumed])

        longest = max(self.runs, key=lambda one: len(one.events))
        self._begin("What the agent did, in the run that was cut")
        say("")
        write_run(self._output, run_async(_load(self.url, longest)))

        self._begin("What was verified")
        proofs = [proof, *reopened.proofs, resumed, *run_async(self.prove())]
        self._output.table(
            (Column(""), Column("check"), Column("found", DIM)),
            [(self._sign(proof), proof.check, proof.found) for proof in proofs],
        )
        self._next_commands(longest)
        return proofs

    def _begin(self, title: str) -> None:
        self._act += 1
        self._output.line("")
        self._output.line((f"{self._act}  ", NAME), (title, BOLD))
        self._output.flush()

    def _sign(self, proof: Proof) -> tuple[str, str]:
        return (self._output.tick, GOOD) if proof.ok else (self._output.cross, BAD)

    def _tell(self, proofs: Sequence[Proof]) -> None:
        for proof in proofs:
            sign, style = self._sign(proof)
            self._output.line("   ", (f"{sign} ", style), proof.check, (f"   {proof.found}", DIM))

    @contextmanager
    def _bar(self) -> Generator[_Seen]:
        if not self._output.terminal:
            yield _ignore
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415  # see Output.console

        columns = (
            TextColumn("  "),
            BarColumn(bar_width=30, complete_style="cyan", finished_style="green"),
            MofNCompleteColumn(),
            TextColumn("{task.description}", style=DIM, markup=False),
        )
        with Progress(*columns, console=self._output.console) as bar:
            task = bar.add_task("", total=self.total)

            def seen(one: Acknowledged) -> None:
                bar.update(task, advance=1, description=f"{one.run} #{one.seq} {one.type}")

            yield seen
            bar.update(task, description="acknowledged")

    def _next_commands(self, run: SampleRun) -> None:
        program = _program()
        say = self._output.line
        say("")
        say(("Try next", BOLD), (f", after  export AMLOG_STORE={without_credentials(self.url)}", DIM))
        commands = {
            "runs": "the runs in it",
            f"show {run_name(run.agent, run.run)} --full": "every detail of the run above",
            "export --all -o runs.jsonl": "all of it as text",
        }
        width = max(map(len, commands))
        for command, what in commands.items():
            say("   ", (f"{program} {command:<{width}}", NAME), (f"   {what}", DIM))


def _ignore(_one: Acknowledged) -> None:
    """Nobody is watching."""


def _program() -> str:
    """How the person at the terminal can call this program."""
    if shutil.which("amlog"):
        return "amlog"
    beside = Path(sys.executable).with_name("amlog")
    if not beside.exists():
        return f"{sys.executable} -m agent_memory_log.cli"
    return str(beside.relative_to(Path.cwd()) if beside.is_relative_to(Path.cwd()) else beside)


def _write(url: str, pause: float, seen: _Seen, *, kill_after: int | None = None) -> _Written:
    """Run a writer process to its end, or until it has acknowledged ``kill_after`` events."""
    process = subprocess.Popen(  # noqa: S603  # our own module, by a list of arguments
        [sys.executable, "-m", "agent_memory_log.cli.demo_writer", str(pause)],
        env={**os.environ, "AMLOG_STORE": url},  # it may hold a password, and arguments are there for all to see
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for this process, which then ends the writer
    )
    decoder = msgspec.json.Decoder(Acknowledged)
    acknowledged: list[Acknowledged] = []
    try:
        assert process.stdout is not None  # noqa: S101  # as it was asked for; Popen's type cannot say so
        for line in process.stdout:
            if not line.endswith(b"\n"):
                break  # it died while it wrote this, and so nobody was told
            acknowledged.append(decoder.decode(line))
            seen(acknowledged[-1])
            if len(acknowledged) == kill_after:
                time.sleep(random.uniform(0, 2 * pause))  # noqa: S311  # to hit it anywhere: asleep, or in an append
                process.kill()
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    return _Written(acknowledged, process.returncode, process.pid)


async def _holds_any(url: str, runs: Sequence[SampleRun]) -> bool:
    async with open_store(url) as store:
        return any([(await store.load_run(one.agent, one.run, limit=1)).version for one in runs])


async def _look(url: str, runs: Sequence[SampleRun], acknowledged: Sequence[Acknowledged]) -> Reopened:
    async with open_store(url) as store:
        return await look_after_kill(store, runs, acknowledged)


async def _load(url: str, one: SampleRun) -> Snapshot:
    async with open_store(url) as store:
        return await store.load_run(one.agent, one.run)
