"""The arguments and the results of the loop memory, as plain structs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Self

import msgspec

from agent_memory_log.errors import DecodeError, InvalidArgument
from agent_memory_log.events.event import Event
from agent_memory_log.events.fields import describe
from agent_memory_log.events.nested import EventPlace
from agent_memory_log.memory.records.principals import Principal
from agent_memory_log.memory.records.reports.outcomes import DeriveReport
from agent_memory_log.transcript.transcripts import Transcript

MOST_POINTER_BYTES = 1_023
"""The largest pointer to a checkpoint, in bytes: less than 1 KiB."""


class Loop(msgspec.Struct, frozen=True):
    """An agent loop: its run, and the principal whose memory it uses.

    Attributes:
        agent: The agent of the run.
        run: The id of the run.
        principal: The owner of the memory. Take it from a configuration, never from a message.

    Raises:
        InvalidArgument: ``principal`` is not a ``Principal``.
    """

    agent: str
    run: str
    principal: Principal

    def __post_init__(self) -> None:
        if not isinstance(self.principal, Principal):
            raise InvalidArgument(f"principal must be a Principal, got {describe(self.principal)}")


class Progress(msgspec.Struct, frozen=True):
    """The progress of a loop, as its run shows it.

    Attributes:
        version: The version of the run.
        iteration: The number of answers of the model. An answer is its text, reasoning and calls without results
            between them.
        tokens: The tokens of the conversation that the model receives: those that the provider reported with the
            latest answer, and an estimate for what follows it.
        utilization: ``tokens`` divided by the size of the model's context.
    """

    version: int = 0
    iteration: int = 0
    tokens: int = 0
    utilization: float = 0.0


class LoopContext(msgspec.Struct, frozen=True):
    """Background for the model of a loop. ``recorder.inject`` takes it too.

    Attributes:
        text: The text, or ``""`` if there is nothing to say.
        tokens: The number of tokens of the text.
        records: The ids of the memory records in the text.
        messages: The events that the text quotes, of this run and of others.
        source: ``pre_task``, ``post_compaction`` or ``entities``.
        note: The problem that limited the search of memory, or ``""``.
        left_out: The number of lines that did not fit.
        event: The logged ``InjectedContext``, or None if the text is empty.
    """

    text: str = ""
    tokens: int = 0
    records: tuple[str, ...] = ()
    messages: tuple[EventPlace, ...] = ()
    source: str = ""
    note: str = ""
    left_out: int = 0
    event: Event | None = None


class Triple(msgspec.Struct, frozen=True, omit_defaults=True):
    """A statement for a knowledge graph.

    Attributes:
        subject: The subject: ``TENANT/SCOPE/ID`` of the memory, or the entity that a relation begins at.
        predicate: Three dotted levels, such as ``agent.preference.language``.
        object: The value.
        source: The source of the memory, such as ``run:support-agent/run-42``.
        timestamp: The time of the latest change.
        confidence: From 0 to 1.
        context: The id of the memory record. All triples of a record have it.
        datatype: The type of the object, or ``""``.
    """

    subject: str
    predicate: str
    object: str
    source: str
    timestamp: datetime
    confidence: float
    context: str = ""
    datatype: str = ""


class GraphChanges(msgspec.Struct, frozen=True):
    """The changes after which a knowledge graph holds the memory of a principal.

    Attributes:
        add: The triples of new and changed records.
        delete: One triple for each record that is no longer active, or has changed. It holds no words of the record,
            which may be erased: delete every triple whose ``context`` is its ``context``. Delete before you add.
        records: The time of the latest change of each active record, by its id. Pass it to the next call.
    """

    add: tuple[Triple, ...] = ()
    delete: tuple[Triple, ...] = ()
    records: Mapping[str, datetime] = {}


class Extracted(msgspec.Struct, frozen=True):
    """The result of ``extract``.

    Attributes:
        report: The report of ``Memory.derive``. Its status is ``stopped`` if the extractor failed: extract again.
        is_due: Whether an extraction was due. If not, no extractor was asked.
    """

    report: DeriveReport
    is_due: bool = True


class LoopCheckpoint(msgspec.Struct, frozen=True):
    """A point of a run to continue from. The log holds it as ``Checkpoint`` events, which copy no text of the run.

    Attributes:
        loop: The loop.
        checkpoint_id: The id of the checkpoint.
        version: The version of the run that the checkpoint covers.
        iteration: The iteration at this version.
        utilization: The part of the model's context in use at this version.
        reason: The reason for it, such as ``compaction_starting``.
        created: The time of the checkpoint.
        expires: The time from which on it cannot be restored.
        parts: The number of its events.
    """

    loop: Loop
    checkpoint_id: str
    version: int
    iteration: int
    utilization: float
    reason: str
    created: datetime
    expires: datetime
    parts: int = 1

    def pointer(self) -> bytes:
        """Return the checkpoint as JSON of less than 1 KiB, for a key-value bucket.

        It names neither agent, run nor principal, so whoever can write to the bucket cannot point to another run.
        """
        fields = {name: getattr(self, name) for name in _POINTER_FIELDS}
        return msgspec.json.encode(fields)

    @classmethod
    def from_pointer(cls, loop: Loop, pointer: bytes) -> Self:
        """Return the checkpoint of a loop that ``pointer`` names. Raises ``DecodeError`` if it is not a pointer."""
        if len(pointer) > MOST_POINTER_BYTES:
            raise DecodeError(f"a pointer to a checkpoint has at most {MOST_POINTER_BYTES} bytes, got {len(pointer):,}")
        try:
            fields: dict[str, Any] = msgspec.structs.asdict(msgspec.json.decode(pointer, type=_Pointer))
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise DecodeError(f"this is not a pointer to a checkpoint: {error}") from error
        return cls(loop=loop, **fields)


class _Pointer(msgspec.Struct, frozen=True):
    """The fields of a pointer. They are those of ``LoopCheckpoint`` without the loop."""

    checkpoint_id: str
    version: int
    iteration: int
    utilization: float
    reason: str
    created: Annotated[datetime, msgspec.Meta(tz=True)]
    expires: Annotated[datetime, msgspec.Meta(tz=True)]
    parts: int


_POINTER_FIELDS = _Pointer.__struct_fields__


class Restored(msgspec.Struct, frozen=True):
    """A conversation to continue with.

    Attributes:
        transcript: The messages for the provider. They are valid for it.
        request: The other arguments of the provider's call, from the latest request in the run.
        summary: What the conversation tells the model about the events that were cut, or ``""`` if none were.
        tokens: The number of tokens of the messages, without instructions at the beginning.
        open_calls: The newest 1,000 tool calls without a result. The transcript says of each that it was interrupted,
            and a summary names them. A call whose result was erased may be among them, if no recorder stored it.
        decisions: The different texts of the decisions of the run, the oldest first, also those that did not fit. Of
            more than 1,000 decisions, these are the newest.
        version: The version of the run that was read. Events after the checkpoint are part of the conversation.
        is_whole: Whether nothing was cut.
    """

    transcript: Transcript
    request: dict[str, Any]
    summary: str
    tokens: int
    open_calls: tuple[Event, ...]
    decisions: tuple[str, ...]
    version: int
    is_whole: bool
