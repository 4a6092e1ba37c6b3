"""More of the table of memory operations: those that a model needs when memory is one of its tools.

See ``operations``. To add an operation here, add a struct, and its lines in ``methods.py`` and ``execution.py``.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from agent_memory_log.memory.records.arguments import Operation
from agent_memory_log.memory.records.messages import Turn
from agent_memory_log.memory.records.reports import DeriveReport, Outcome


class Ingest(Operation[DeriveReport], frozen=True):
    """Store the turns of a conversation as a run, and learn from them.

    The run belongs to the principal, and ``source_id`` names it. A turn that is stored already is not stored again, so
    the same call can be repeated, and a later call can pass the whole conversation with new turns at its end.

    Raises:
        InvalidArgument: A turn differs from the turn that is stored at its place, or there is no extractor.
    """

    writes = True
    right = "write"
    positional = 2

    turns: Annotated[tuple[Turn, ...], Meta(description="The turns, in the order in which they were said.")]
    source_id: Annotated[str, Meta(description="The name of the conversation, the same in each call about it.")]
    first_turn: Annotated[
        int, Meta(ge=0, le=1_000_000, description="The place of the first of these turns in the conversation, from 0.")
    ] = 0


class Delete(Operation[Outcome], frozen=True):
    """Archive an active record, so that no search and no context has it. ``restore`` brings it back.

    The record stays in the store. To erase it for good, use ``forget``. A later statement creates a new record.

    Raises:
        InvalidArgument: There is no record with this id.
    """

    writes = True
    right = "write"
    positional = 1

    id: Annotated[str, Meta(description="The id of the record.")]


class Restore(Operation[Outcome], frozen=True):
    """Write an archived record again. The new record has an id of its own, and a link ``restores`` to the old one.

    The new record passes the same checks as every memory. If its key has a newer value, that value stays, and the
    outcome's action is ``outdated``.

    Raises:
        InvalidArgument: There is no record with this id, or it was superseded or has expired.
        MemoryStopped: The policy refuses the memory. The error has the reason.
    """

    writes = True
    right = "write"
    positional = 1

    id: Annotated[str, Meta(description="The id of the archived record.")]
