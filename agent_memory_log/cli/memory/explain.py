"""``amlog memory explain``: shows the source and the evidence of a memory."""

from __future__ import annotations

import msgspec

from agent_memory_log.cli.errors import CommandFailed
from agent_memory_log.cli.memory.finding import existing
from agent_memory_log.cli.memory.options import Kind, RecordName, Scopes, Tenant, User, open_memory, principal_of
from agent_memory_log.cli.memory.show import write_heading
from agent_memory_log.cli.memory.views import evidence_map, evidence_name, record_map
from agent_memory_log.cli.options import AsJson, StoreUrl, run_async
from agent_memory_log.cli.output import BOLD, DIM, NAME, Output
from agent_memory_log.memory import Explanation, Principal
from agent_memory_log.wording import counted


def explain(
    record: RecordName,
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    kind: Kind = None,
    as_json: AsJson = False,
) -> None:
    """Explain why something is remembered.

    Shows the source of the memory, the trust in it, the text of the events it cites, and the later changes to it. The
    text of an event is shown only if its run is linked or was read by amlog memory derive. For other events, the reason
    is shown.

    With --json: an object with record (as in amlog memory list), status, source, evidence, events (a list of texts) and
    trust. Each piece of evidence has name, agent, run, seq, item, text and reason. The trust has its value and the
    numbers that it is computed from, or is null if the memory is not active.
    """
    explanation = run_async(_explain(store, principal_of(tenant, user, scopes), record, kind))
    output = Output()
    if as_json:
        evidence = [
            {**evidence_map(line.evidence), "text": line.text, "reason": line.reason} for line in explanation.evidence
        ]
        output.json(
            {
                "record": record_map(explanation.record),
                "status": explanation.status,
                "source": explanation.source,
                "evidence": evidence,
                "events": list(explanation.events),
                "trust": msgspec.to_builtins(explanation.trust),
            }
        )
        return
    write_heading(output, explanation.record)
    output.line("  ", ("source: ", DIM), explanation.source)
    trust = explanation.trust
    if trust is not None:
        parts = f"{counted(trust.sources, 'source')}, {counted(trust.conflicts, 'open conflict')}"
        output.line("  ", ("trust: ", DIM), f"{trust.value:.0%} ({parts}, {trust.age_days:,.0f} days old)")
    if explanation.evidence:
        output.line(("evidence", BOLD))
    for line in explanation.evidence:
        output.hanging(["  ", (evidence_name(line.evidence), NAME), "  "], line.text or f"({line.reason})")
    if explanation.events:
        output.line(("history", BOLD))
    for text in explanation.events:
        output.line("  ", text)


async def _explain(url: str | None, principal: Principal, name: str, kind: str | None) -> Explanation:
    async with open_memory(url, principal) as memory:
        record = await existing(memory, name, kind)
        explanation = await memory.explain(record.id)
        if explanation is None:  # another process forgot it after it was found
            raise CommandFailed(f"the memory {name!r} was forgotten")
        return explanation
