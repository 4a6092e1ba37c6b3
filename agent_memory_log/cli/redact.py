"""``amlog redact``: removes the content of single events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from agent_memory_log.cli.errors import UsageProblem
from agent_memory_log.cli.options import AsJson, RunName, StoreUrl, Yes, confirmed, with_store
from agent_memory_log.cli.output import Output
from agent_memory_log.cli.run_names import existing_run, fork_names, run_name
from agent_memory_log.cli.terminal_text import one_line
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import AppendResult, Store
from agent_memory_log.transfer.forking import forks_of
from agent_memory_log.wording import counted, ranges

_MOST_SEQS = 100_000


def redact(
    run: RunName,
    seqs: Annotated[
        list[str], typer.Argument(metavar="SEQ", help="The seqs to redact, such as 3 or 5-8.", show_default=False)
    ],
    *,
    store: StoreUrl = None,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="The reason, which is stored in the log.")
    ] = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Redact events of a run permanently.

    Removes the content and labels of the events. Their seqs, times and ids stay. The command asks for confirmation. If
    there is no terminal, confirm with --yes. The content cannot be read after this. amlog compact also erases it from
    an SQLite file.

    Forks of the run keep the events. The command lists them.

    With --json: an object with agent, run, seqs, version, changed and forks. changed is false if all of these events
    were redacted before.
    """
    selected = sorted(set(_expanded(seqs)))

    async def work(opened: Store) -> tuple[Snapshot, AppendResult, list[str]]:
        head = await existing_run(opened, run)
        events = f"{counted(len(selected), 'event')} ({ranges(selected)})"
        confirmed(f"Redact {events} of {run_name(head.agent, head.run)} permanently?", yes=yes)
        redacted = await opened.redact_events(head.agent, head.run, selected, reason=reason)
        return head, redacted, fork_names(await forks_of(opened, head.agent, head.run, first_seq=selected[0]))

    head, result, forks = with_store(store, work)
    changed = bool(result.inserted)
    done = f"redacted {ranges(selected)} of" if changed else "these events were already redacted in"
    Output().report(
        {
            "agent": head.agent,
            "run": head.run,
            "seqs": selected,
            "version": result.version,
            "changed": changed,
            "forks": forks,
        },
        f"{done} {run_name(head.agent, head.run)}",
        f"forks may still hold them: {', '.join(forks)}" if forks else "",
        as_json=as_json,
    )


def _expanded(texts: Iterable[str]) -> Iterable[int]:
    for text in texts:
        first, dash, last = text.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UsageProblem(f"{one_line(text)!r} is not a seq: give a number such as 3, or a range such as 5-8")
        start, end = int(first), int(last if dash else first)
        if end < start or end - start > _MOST_SEQS:
            raise UsageProblem(
                f"{one_line(text)!r} is not a valid range: it must ascend and have at most {_MOST_SEQS:,} seqs"
            )
        yield from range(start, end + 1)
