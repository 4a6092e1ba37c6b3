"""``amlog memory search``: the memories that have to do with a question."""

from __future__ import annotations

from typing import Annotated

import typer

from agent_memory_log.cli.errors import UsageProblem
from agent_memory_log.cli.memory.options import Kinds, Scopes, Tenant, User, not_empty, open_memory, principal_of
from agent_memory_log.cli.memory.views import evidence_map, evidence_name, record_map, source_name
from agent_memory_log.cli.options import AsJson, StoreUrl, instant, run_async
from agent_memory_log.cli.output import DIM, GOOD, Column, Output, note
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.memory import Hit
from agent_memory_log.memory.index.query import MOST_HITS

_COLUMNS = (Column("score", number=True), Column("kind"), Column("memory"), Column("from"))
"""Of the table off a terminal, which has no styles."""


def search(
    query: Annotated[list[str], typer.Argument(metavar="QUERY", help="Words, in any order.", show_default=False)],
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    kinds: Kinds = None,
    top: Annotated[int, typer.Option("--top", "-k", min=1, max=MOST_HITS, metavar="N", help="At most so many.")] = 4,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Only what was said from then on, such as 2026-11-21T09:30:00Z.",
            show_default=False,
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Only what was said before then.", show_default=False)
    ] = None,
    boost: Annotated[
        list[str] | None,
        typer.Option(
            "--boost",
            metavar="KEY",
            help="A preference that gains, and need not share a word; repeatable.",
            show_default=False,
        ),
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say what each part contributes to a score.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find the memories and messages that have to do with a question, the best first.

    Messages are those of runs that were learnt from, or linked with amlog memory link, by the same user.

    With --json: a list, each with score, matched_by (each part's share of the score), kind, id, text, evidence (each
    with name, agent, run, seq and item) and record, as an item of amlog memory list, or null where what was found is
    none.
    """
    principal = principal_of(tenant, user, scopes)
    begin = None if since is None else instant("--since", since)
    end = None if until is None else instant("--until", until)
    if begin is not None and end is not None and begin >= end:
        raise UsageProblem("--since must be before --until")
    wanted, boosted = not_empty("--kind", kinds), not_empty("--boost", boost)

    async def found() -> tuple[Hit, ...]:
        async with open_memory(store, principal) as memory:
            return await memory.search(
                " ".join(query), top_k=top, kinds=wanted, since=begin, until=end, boost_preferences=boosted or ()
            )

    hits = run_async(found())
    output = Output()
    if as_json:
        output.json([_hit_map(hit) for hit in hits])
    elif not hits:
        note("nothing found")
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
    return ", ".join(evidence_name(one) for one in hit.evidence)


def _shares(hit: Hit) -> str:
    return ", ".join(f"{name} {share:+.2f}" for name, share in hit.matched_by.items())


def _hit_map(hit: Hit) -> dict[str, JsonValue]:
    return {
        "score": hit.score,
        "matched_by": dict(hit.matched_by),
        "kind": hit.kind,
        "id": hit.id,
        "text": hit.text,
        "evidence": [evidence_map(one) for one in hit.evidence],
        "record": None if hit.record is None else record_map(hit.record),
    }
