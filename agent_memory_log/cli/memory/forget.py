"""``amlog memory forget``: a memory, or all of it, gone."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from agent_memory_log.cli.errors import CommandFailed, UsageProblem
from agent_memory_log.cli.memory.options import (
    RECORD_HELP,
    Kind,
    Scopes,
    Tenant,
    User,
    open_memory,
    principal_of,
    whose,
)
from agent_memory_log.cli.memory.table import default, option
from agent_memory_log.cli.memory.views import evidence_map, evidence_name, memories, name_of
from agent_memory_log.cli.options import AsJson, StoreUrl, Yes, confirmed, run_async
from agent_memory_log.cli.output import GOOD, Output
from agent_memory_log.memory import ForgetReport, Memory, Principal
from agent_memory_log.memory.operations import Forget
from agent_memory_log.memory.upkeep.erasing import Reach
from agent_memory_log.wording import counted


def forget(
    record: Annotated[
        str | None,
        typer.Argument(metavar="RECORD", help=f"{RECORD_HELP}; leave out with --all.", show_default=False),
    ] = None,
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    kind: Kind = None,
    everything: Annotated[bool, typer.Option("--all", help="Everything, of every scope that is given.")] = False,
    evidence: Annotated[bool, option(Forget, "evidence", "--evidence")] = False,
    sweep: Annotated[bool, option(Forget, "sweep", "--sweep")] = False,
    sweep_limit: Annotated[int, option(Forget, "sweep_limit", "--sweep-limit")] = default(Forget, "sweep_limit"),
    dry_run: Annotated[bool, option(Forget, "dry_run", "--dry-run")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Forget a memory, for good.

    A key means every value it has ever had; an id that memory, and what says the same. Asks first; off a terminal --yes
    must be given. What it came from is not learnt from again, and a later statement makes a new memory; with --all
    nothing that was said so far is learnt again. Nothing of it can be read from then on; amlog compact erases it from
    an SQLite file. With --json: records, events (redacted in the memory's own stream), evidence (redacted in runs),
    elsewhere (events of linked runs that hold the value and stay, each with name, agent, run, seq and item) and
    other_records (ids of the memories that hold it and stay).
    """
    if (record is None) != everything or (everything and kind is not None):
        raise UsageProblem("give either a RECORD, with its --kind where several have the key, or --all")
    if everything and (sweep or dry_run):
        raise UsageProblem("--sweep and --dry-run take a RECORD: a sweep looks for its value")
    reach = Reach(evidence, sweep, sweep_limit, dry_run)
    principal = principal_of(tenant, user, scopes)
    report = run_async(_forget(store, principal, record, kind, reach, yes=yes))
    output = Output()
    if as_json:
        elsewhere = [evidence_map(place) for place in report.elsewhere]
        output.json({**msgspec.to_builtins(report), "elsewhere": elsewhere})
        return
    gone = memories(report.records) if report.records else "what was noted of it"
    verb = ("would forget", "redact") if dry_run else ("forgot", "redacted")
    also = f", and {verb[1]} {counted(report.evidence, 'event')} of runs" if report.evidence else ""
    output.line((f"{output.tick} ", GOOD), f"{verb[0]} {gone}{also}")
    if report.elsewhere:
        shown = ", ".join(evidence_name(place) for place in report.elsewhere[:_SHOWN])
        more = ", …" if len(report.elsewhere) > _SHOWN else ""
        output.line(f"  {counted(len(report.elsewhere), 'event')} of linked runs still hold the value: {shown}{more}")
    if report.other_records:
        shown = ", ".join(report.other_records[:_SHOWN])
        more = ", …" if len(report.other_records) > _SHOWN else ""
        output.line(f"  {_others(len(report.other_records))} the value: {shown}{more}")


_SHOWN = 5


def _others(count: int) -> str:
    return "1 other memory still holds" if count == 1 else f"{count:,} other memories still hold"


async def _forget(
    url: str | None, principal: Principal, name: str | None, kind: str | None, reach: Reach, *, yes: bool
) -> ForgetReport:
    async with open_memory(url, principal) as memory:
        and_events = " and the events it came from" if reach.evidence else ""
        if reach.sweep:
            and_events = " and every event of linked runs that holds it"
        if name is None:
            count = len(await memory.list())
            confirmed(f"Forget all {memories(count)} of {whose(principal)}{and_events} for good?", yes=yes)
            return await memory.forget_all(evidence=reach.evidence)
        id_, what = await _named(memory, name, kind)
        confirmed(f"Forget {what} of {whose(principal)}{and_events} for good?", yes=yes or reach.dry_run)
        report = await memory.forget(
            id=id_,
            key=name if id_ is None else None,
            kind=kind if id_ is None else None,
            evidence=reach.evidence,
            sweep=reach.sweep,
            sweep_limit=reach.sweep_limit,
            dry_run=reach.dry_run,
        )
        if id_ is None and not (report.records or report.events):
            raise CommandFailed(f"nothing is known of {name!r} of {whose(principal)}: see amlog memory list")
        return report


async def _named(memory: Memory, name: str, kind: str | None) -> tuple[str | None, str]:
    """The id that is meant (None: ``name`` is a key), and what it is in words.

    What has no value may yet be a key that was blocked, and only forgetting it can tell.
    """
    values = len(await memory.history(name, kind=kind))
    explanation = None if values else await memory.explain(name)
    if explanation is None or kind not in (None, explanation.record.kind):
        return None, f"{name!r}" + (f", {counted(values, 'value')}," if values else "")
    record = explanation.record
    return record.id, f"the {record.kind} {name_of(record)!r}"
