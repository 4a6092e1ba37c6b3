"""``amlog memory search``: finds the memories and messages that match a question."""

from __future__ import annotations

from typing import Annotated

import typer

from agent_memory_log.cli.errors import UsageProblem
from agent_memory_log.cli.memory.options import Kinds, Scopes, Tenant, User, not_empty, open_memory, principal_of
from agent_memory_log.cli.memory.table import default, option
from agent_memory_log.cli.memory.views import evidence_map, evidence_name, record_map, source_name
from agent_memory_log.cli.options import AsJson, StoreUrl, instant, run_async
from agent_memory_log.cli.output import DIM, GOOD, Column, Output, note
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.memory import Hit
from agent_memory_log.memory.operations import Search

_COLUMNS = (Column("score", number=True), Column("kind"), Column("memory"), Column("from"))
"""The columns if the output is not a terminal. They have no styles."""


def search(
    query: Annotated[list[str], typer.Argument(metavar="QUERY", help="Words, in any order.", show_default=False)],
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    kinds: Kinds = None,
    top: Annotated[int | None, option(Search, "top_k", "--top", "-k", metavar="N")] = default(Search, "top_k"),
    since: Annotated[str | None, option(Search, "since", "--since", metavar="TIME")] = None,
    until: Annotated[str | None, option(Search, "until", "--until", metavar="TIME")] = None,
    boost: Annotated[list[str] | None, option(Search, "boost_preferences", "--boost", metavar="KEY")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show how much each part adds to the score.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find memories and messages that match a question, best first.

    Searches the messages of runs that the same user has linked with amlog memory link or read with amlog memory derive.

    With --json: a list of objects with score, matched_by (the share of each part in the score), kind, id, text,
    evidence and record. Each piece of evidence has name, agent, run, seq and item. The record is an object as in amlog
    memory list, and null for a message.
    """
    principal = principal_of(tenant, user, scopes)
    begin = None if since is None else instant("--since", since)
    end = None if until is None else instant("--until", until)
    if begin is not None and end is not None and begin >= end:
        raise UsageProblem("--since must be before --until")
    searched_kinds, boosted = not_empty("--kind", kinds), not_empty("--boost", boost)

    async def work() -> tuple[Hit, ...]:
        async with open_memory(store, principal) as memory:
            return await memory.search(
                " ".join(query),
                top_k=top,
                kinds=searched_kinds,
                since=begin,
                until=end,
                boost_preferences=boosted or (),
            )

    hits = run_async(work())
    output = Output()
    if as_json:
        output.json([_hit_map(hit) for hit in hits])
    elif not hits:
        note("no matches")
    elif output.terminal:
        for hit in hits:
            output.hanging([(f"{hit.score:.2f}", GOOD), "  "], _text(hit))
            output.line("      ", (f"{hit.kind}, {_source(hit)}", DIM))
            if explain:
                output.line("      ", (_shares(hit), DIM))
    elif explain:
        rows = [(f"{hit.score:.2f}", hit.kind, _text(hit), _source(hit), _shares(hit)) for hit in hits]
        output.table((*_COLUMNS, Column("matched by")), rows)
    else:
        output.table(_COLUMNS, [(f"{hit.score:.2f}", hit.kind, _text(hit), _source(hit)) for hit in hits])


def _text(hit: Hit) -> str:
    return hit.text if hit.message is None else f"{hit.message.speaker}: {hit.text}"


def _source(hit: Hit) -> str:
    if hit.record is not None:
        return source_name(hit.record)
    return ", ".join(evidence_name(evidence) for evidence in hit.evidence)


def _shares(hit: Hit) -> str:
    return ", ".join(f"{name} {share:+.2f}" for name, share in hit.matched_by.items())


def _hit_map(hit: Hit) -> dict[str, JsonValue]:
    return {
        "score": hit.score,
        "matched_by": dict(hit.matched_by),
        "kind": hit.kind,
        "id": hit.id,
        "text": hit.text,
        "evidence": [evidence_map(evidence) for evidence in hit.evidence],
        "record": None if hit.record is None else record_map(hit.record),
    }
