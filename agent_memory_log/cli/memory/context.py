"""``amlog memory context``: what a planner puts in front of a model that is asked something."""

from __future__ import annotations

from typing import Annotated

import typer

from agent_memory_log.cli.memory.options import Scopes, Tenant, User, open_memory, principal_of
from agent_memory_log.cli.memory.table import default, option
from agent_memory_log.cli.memory.views import evidence_map
from agent_memory_log.cli.options import AsJson, StoreUrl, run_async
from agent_memory_log.cli.output import Output, note
from agent_memory_log.memory import MemoryContext, Principal
from agent_memory_log.memory.operations import BuildContext


def context(
    query: Annotated[list[str], typer.Argument(metavar="QUERY", help="What the model is asked.", show_default=False)],
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    max_tokens: Annotated[int, option(BuildContext, "max_tokens", "--max-tokens", metavar="N")] = default(
        BuildContext, "max_tokens"
    ),
    as_json: AsJson = False,
) -> None:
    """Print what to put in front of a model, as background to a question.

    The facts and preferences, then episodes and messages that have to do with the question, then recent episodes. A
    token is one as tiktoken counts where that is installed, else a byte. With --json: text, tokens, records (their
    ids), messages (each with name, agent, run, seq and item) and note.
    """
    found = run_async(_context(store, principal_of(tenant, user, scopes), " ".join(query), max_tokens))
    output = Output()
    if as_json:
        output.json(
            {
                "text": found.text,
                "tokens": found.tokens,
                "records": list(found.records),
                "messages": [evidence_map(one) for one in found.messages],
                "note": found.note,
            }
        )
    elif found.text:
        for line in found.text.split("\n"):
            output.line(line)
    else:
        note("nothing remembered that fits")


async def _context(url: str | None, principal: Principal, query: str, max_tokens: int) -> MemoryContext:
    async with open_memory(url, principal) as memory:
        return await memory.context(query, max_tokens=max_tokens)
