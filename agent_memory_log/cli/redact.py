"""``amlog redact``: the content of single events, gone; their places stay."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from agent_memory_log.cli.errors import UsageProblem
from agent_memory_log.cli.names import existing_run, run_name
from agent_memory_log.cli.options import AsJson, RunName, StoreUrl, Yes, confirmed, open_existing, run_async
from agent_memory_log.cli.output import GOOD, Output
from agent_memory_log.cli.text import counted, one_line, ranges

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
    agent, name, version, changed = run_async(_redact(store, run, wanted, reason, yes=yes))
    output = Output()
    if as_json:
        output.json({"agent": agent, "run": name, "seqs": wanted, "version": version, "changed": changed})
        return
    done = f"redacted {ranges(wanted)} of" if changed else "nothing left to redact in"
    output.line((f"{output.tick} ", GOOD), f"{done} {run_name(agent, name)}")


async def _redact(url: str | None, name: str, seqs: list[int], reason: str, *, yes: bool) -> tuple[str, str, int, bool]:
    async with open_existing(url) as store:
        info = await existing_run(store, name)
        what = f"{counted(len(seqs), 'event')} ({ranges(seqs)})"
        confirmed(f"Redact {what} of {run_name(info.agent, info.run)} for good?", yes=yes)
        result = await store.redact_events(info.agent, info.run, seqs, reason=reason)
        return info.agent, info.run, result.version, bool(result.inserted)


def _expanded(texts: Iterable[str]) -> Iterable[int]:
    for text in texts:
        first, dash, last = text.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UsageProblem(f"{one_line(text)!r} is not a seq, such as 3, or a range of them, such as 5-8")
        start, end = int(first), int(last if dash else first)
        if end < start or end - start > _MOST_SEQS:
            raise UsageProblem(f"{one_line(text)!r} is not a range of at most {_MOST_SEQS:,} seqs")
        yield from range(start, end + 1)
