"""The operations that a model needs when memory is one of its tools."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from agent_memory_log.memory.operations.fields import RecordId, Scope, Share, Tags, ValidFrom
from agent_memory_log.memory.records.arguments import Operation
from agent_memory_log.memory.records.candidates import Candidate
from agent_memory_log.memory.records.messages import ConversationTurn
from agent_memory_log.memory.records.record import DEFAULT_IMPORTANCE
from agent_memory_log.memory.records.reports.outcomes import DeriveReport, Outcome


class Ingest(Operation[DeriveReport], frozen=True):
    """Store the turns of a conversation as a run, and learn from them.

    The run belongs to the principal, and ``source_id`` names it. A turn that is stored already is not stored again, so
    the same call can be repeated, and a later call can pass the whole conversation with new turns at its end.

    A short conversation is read too, although ``derive`` waits for four messages.

    Raises:
        InvalidArgument: A turn differs from the turn that is stored at its place, or there is no extractor.
    """

    writes = True
    right = "write"
    positional = 2

    turns: Annotated[tuple[ConversationTurn, ...], Meta(description="The turns, in the order in which they were said.")]
    source_id: Annotated[str, Meta(description="The name of the conversation, the same in each call about it.")]
    first_turn: Annotated[
        int, Meta(ge=0, le=1_000_000, description="The place of the first of these turns in the conversation, from 0.")
    ] = 0


class Add(Operation[Outcome], frozen=True):
    """Remember a statement as a note, a record without a key.

    If an equal note exists, it is refreshed. ``remember`` stores what has a key, so that a later value replaces it.

    Raises:
        InvalidArgument: The parent does not exist, or the record to supersede is not active.
        MemoryStopped: The policy refuses the memory. The error has the reason.
    """

    writes = True
    right = "write"
    positional = 2

    content: Annotated[str, Meta(description="The statement, as a sentence that can be read alone.")]
    source_id: Annotated[str, Meta(description="The id of the source, such as a conversation or a person.")] = ""
    memory_type: Annotated[str, Meta(description="``semantic``, ``episodic`` or ``procedural``.")] = "semantic"
    trust_score: Annotated[
        float | None,
        Meta(description="The reliability of the source, 0 to 1. Default: 1."),
    ] = None
    importance: Share = DEFAULT_IMPORTANCE
    entity_refs: Annotated[
        tuple[str, ...], Meta(description="The names in the statement. Default: those that are found in it.")
    ] = ()
    tags: Tags = ()
    causal_parent_id: Annotated[
        str | None, Meta(description="The id of the record that the statement was concluded from.")
    ] = None
    supersedes_id: Annotated[str | None, Meta(description="The id of the record that the statement replaces.")] = None
    valid_from: ValidFrom = None
    valid_until: Annotated[datetime | None, Meta(description="The time at which it expires.")] = None
    scope: Scope = None


class AddFromDraft(Operation[Outcome], frozen=True):
    """Remember one proposed memory, such as an extractor returns it. ``write`` takes several at once.

    Raises:
        MemoryStopped: The policy refuses the memory. The error has the reason.
    """

    writes = True
    right = "write"
    positional = 1

    draft: Annotated[Candidate, Meta(description="The proposed memory.")]


class Delete(Operation[Outcome], frozen=True):
    """Archive an active record, so that no search and no context has it. ``restore`` brings it back.

    The record stays in the store. To erase it for good, use ``forget``. A later statement creates a new record.

    Raises:
        InvalidArgument: There is no record with this id.
    """

    writes = True
    right = "write"
    positional = 1

    id: RecordId


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
