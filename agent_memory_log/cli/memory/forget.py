"""``amlog memory forget``: erases one memory or all memories of a user."""

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
    owner_text,
    principal_of,
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
        typer.Argument(metavar="RECORD", help=f"{RECORD_HELP} Leave it out with --all.", show_default=False),
    ] = None,
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    kind: Kind = None,
    everything: Annotated[bool, typer.Option("--all", help="Forget all memories of all given scopes.")] = False,
    evidence: Annotated[bool, option(Forget, "evidence", "--evidence")] = False,
    sweep: Annotated[bool, option(Forget, "sweep", "--sweep")] = False,
    sweep_limit: Annotated[int, option(Forget, "sweep_limit", "--sweep-limit", metavar="N")] = default(
        Forget, "sweep_limit"
    ),
    dry_run: Annotated[bool, option(Forget, "dry_run", "--dry-run")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Forget a memory permanently.

    A key erases every value that the key has had. An id erases that memory and all memories that say the same. The
    command asks for confirmation. If there is no terminal, confirm with --yes.

    The memory cannot be read after this. amlog compact also erases it from an SQLite file. The events it came from are
    not learned from again. A later statement creates a new memory. With --all, nothing is learned again from the events
    that are stored now in the runs that were read.

    With --json: an object with records, events (redacted events of the memory's own stream), evidence (redacted events
    of runs), elsewhere, other_records and fallen. elsewhere lists events of linked runs that still contain the value,
    each with name, agent, run, seq and item. other_records lists the ids of memories that still contain the value.
    fallen lists the ids of other memories that came only from the redacted events.
    """
    if (record is None) != everything or (everything and kind is not None):
        raise UsageProblem("give either a RECORD, with --kind if several kinds have the key, or --all without --kind")
    if everything and (sweep or dry_run):
        raise UsageProblem("--sweep and --dry-run need a RECORD and do not work with --all")
    reach = Reach(evidence, sweep, sweep_limit, dry_run)
    principal = principal_of(tenant, user, scopes)
    report = run_async(_forget(store, principal, record, kind, reach, yes=yes))
    output = Output()
    if as_json:
        elsewhere = [evidence_map(evidence) for evidence in report.elsewhere]
        output.json({**msgspec.to_builtins(report), "elsewhere": elsewhere})
        return
    forgotten = memories(report.records) if report.records else "the notes about it"
    verb = ("would forget", "redact") if dry_run else ("forgot", "redacted")
    also = f", and {verb[1]} {counted(report.evidence, 'event')} of runs" if report.evidence else ""
    output.line((f"{output.tick} ", GOOD), f"{verb[0]} {forgotten}{also}")
    if report.elsewhere:
        names = ", ".join(evidence_name(evidence) for evidence in report.elsewhere[:_MOST_NAMES])
        more = ", …" if len(report.elsewhere) > _MOST_NAMES else ""
        output.line(f"  events of linked runs that still contain the value ({len(report.elsewhere):,}): {names}{more}")
    for records, clause in (
        (report.other_records, "still contain the value"),
        (report.fallen, "came only from these events, so they are forgotten too"),
    ):
        if records:
            more = ", …" if len(records) > _MOST_NAMES else ""
            output.line(f"  other memories that {clause} ({len(records):,}): {', '.join(records[:_MOST_NAMES])}{more}")


_MOST_NAMES = 5


async def _forget(
    url: str | None, principal: Principal, name: str | None, kind: str | None, reach: Reach, *, yes: bool
) -> ForgetReport:
    async with open_memory(url, principal) as memory:
        and_events = " and the events it came from" if reach.evidence else ""
        if reach.sweep:
            and_events = " and every event of linked runs that contains the value"
        if name is None:
            count = len(await memory.list())
            confirmed(f"Forget all {memories(count)} of {owner_text(principal)}{and_events} permanently?", yes=yes)
            return await memory.forget_all(evidence=reach.evidence)
        id_, description = await _find_target(memory, name, kind)
        question = f"Forget {description} of {owner_text(principal)}{and_events} permanently?"
        confirmed(question, yes=yes or reach.dry_run)
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
            raise CommandFailed(
                f"no memory {name!r} of {owner_text(principal)}: list the memories with amlog memory list"
            )
        return report


async def _find_target(memory: Memory, name: str, kind: str | None) -> tuple[str | None, str]:
    """Return the record's id and a description for the question. A key has None as its id.

    A name that matches nothing is treated as a key, because a key whose values were all blocked has no record.
    """
    values = len(await memory.history(name, kind=kind))
    explanation = None if values else await memory.explain(name)
    if explanation is None or kind not in (None, explanation.record.kind):
        return None, f"{name!r}" + (f", {counted(values, 'value')}," if values else "")
    record = explanation.record
    return record.id, f"the {record.kind} {name_of(record)!r}"
