"""``amlog memory context``: prints the memories that a prompt needs as background to a question."""

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
    query: Annotated[list[str], typer.Argument(metavar="QUERY", help="The question to the model.", show_default=False)],
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
    """Print background for a question, to put in front of the model's prompt.

    Prints facts and preferences first, then episodes and messages that match the question, then recent episodes. If
    tiktoken is installed, it counts the tokens. Otherwise they are estimated, rather too high.

    With --json: an object with text, tokens, records (their ids), messages (each with name, agent, run, seq and item),
    note and counted_by.
    """
    result = run_async(_context(store, principal_of(tenant, user, scopes), " ".join(query), max_tokens))
    output = Output()
    if as_json:
        output.json(
            {
                "text": result.text,
                "tokens": result.tokens,
                "records": list(result.records),
                "messages": [evidence_map(message) for message in result.messages],
                "note": result.note,
                "counted_by": result.counted_by,
            }
        )
    elif result.text:
        for line in result.text.split("\n"):
            output.line(line)
    else:
        note(result.note or "no memory matches the question")


async def _context(url: str | None, principal: Principal, query: str, max_tokens: int) -> MemoryContext:
    async with open_memory(url, principal) as memory:
        return await memory.context(query, max_tokens=max_tokens)
