"""``amlog redact``: the content of single events, gone; their places stay."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from agent_memory_log.cli.errors import UsageProblem
from agent_memory_log.cli.options import AsJson, RunName, StoreUrl, Yes, confirmed, with_store
from agent_memory_log.cli.output import Output
from agent_memory_log.cli.run_names import existing_run, run_name
from agent_memory_log.cli.terminal_text import one_line
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import AppendResult, Store
from agent_memory_log.wording import counted, ranges

_MOST_SEQS = 100_000


def redact(
    run: RunName,
    seqs: Annotated[
        list[str], typer.Argument(metavar="SEQ", help="Seqs to redact, such as 3 or 5-8.", show_default=False)
    ],
    *,
    store: StoreUrl = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; kept in the log.")] = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Redact events of a run, for good.

    Their content and labels go; their place, time and id stay. Asks first; off a terminal --yes must be given. Nothing
    of them can be read from then on; amlog compact erases them from an SQLite file. With --json: agent, run, seqs,
    version, and whether anything was still there to redact.
    """
    wanted = sorted(set(_expanded(seqs)))

    async def work(opened: Store) -> tuple[Snapshot, AppendResult]:
        there = await existing_run(opened, run)
        events = f"{counted(len(wanted), 'event')} ({ranges(wanted)})"
        confirmed(f"Redact {events} of {run_name(there.agent, there.run)} for good?", yes=yes)
        return there, await opened.redact_events(there.agent, there.run, wanted, reason=reason)

    there, result = with_store(store, work)
    changed = bool(result.inserted)
    done = f"redacted {ranges(wanted)} of" if changed else "nothing left to redact in"
    Output().report(
        {"agent": there.agent, "run": there.run, "seqs": wanted, "version": result.version, "changed": changed},
        f"{done} {run_name(there.agent, there.run)}",
        as_json=as_json,
    )


def _expanded(texts: Iterable[str]) -> Iterable[int]:
    for text in texts:
        first, dash, last = text.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UsageProblem(f"{one_line(text)!r} is not a seq, such as 3, or a range of them, such as 5-8")
        start, end = int(first), int(last if dash else first)
        if end < start or end - start > _MOST_SEQS:
            raise UsageProblem(f"{one_line(text)!r} is not a range of at most {_MOST_SEQS:,} seqs")
        yield from range(start, end + 1)
