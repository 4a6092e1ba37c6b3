"""The messages that the processor exchanges with other components: JSON with the names of their contract.

A message that arrives is checked, and its unknown fields are ignored. A message that leaves is checked before it is
stored, so that no receiver sees a field of a wrong type.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from agent_memory_log.errors import DecodeError, InvalidArgument
from agent_memory_log.events.fields import describe
from agent_memory_log.processor.loops import Triple

MAX_TOKEN = 256
"""The most characters of a loop id. The server limits a subject to about 4,000 bytes."""

MAX_USER = 512
"""The most characters of the id of a user. The ids of a principal are shorter."""

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Share = Annotated[float, Meta(ge=0)]
Source = Literal["pre_task", "post_compaction"]
Operation = Literal["add_triples", "delete_triples"]

_Message = TypeVar("_Message", bound=msgspec.Struct)


class Incoming(msgspec.Struct, frozen=True):
    """A message that arrived.

    Attributes:
        port: The port.
        subject: The subject.
        data: The bytes.
        message_id: The id made from the stream and the sequence.
        sequence: The sequence in the stream.
    """

    port: str
    subject: str
    data: bytes
    message_id: str
    sequence: int


class ContextEvent(msgspec.Struct, frozen=True):
    """An event of a loop's context.

    Attributes:
        type: The event.
        loop_id: The id of the loop.
        iteration: The loop's iteration.
        utilization: The used share of the context window, such as 0.85.
        tokens_saved: The tokens that a compaction saved.
        summary: A summary of the context.
        user_id: The id of the user.
    """

    type: Literal["compaction_starting", "compaction_complete", "gc_complete"]
    loop_id: str
    iteration: Count
    utilization: Share | None = None
    tokens_saved: int | None = None
    summary: str | None = None
    user_id: Annotated[str, Meta(max_length=MAX_USER)] | None = None


class HydrateRequest(msgspec.Struct, frozen=True):
    """A request for context.

    Attributes:
        loop_id: The id of the loop.
        type: The moment that the context is for.
        task_description: The task.
    """

    loop_id: str
    type: Source
    task_description: str | None = None


class InjectedContextMessage(msgspec.Struct, frozen=True):
    """The answer to a hydration.

    Attributes:
        loop_id: The id of the loop.
        context: The text for the model. It is empty if there is nothing to say.
        token_count: The tokens of the text.
        source: The reason of the hydration.
        timestamp: The time in Unix seconds.
    """

    loop_id: str
    context: str
    token_count: Count
    source: Source
    timestamp: int


class GraphMutationMessage(msgspec.Struct, frozen=True):
    """A change of the knowledge graph.

    Attributes:
        operation: Whether to add or to delete the triples.
        loop_id: The id of the loop.
        triples: The triples.
        timestamp: The time in Unix seconds.
    """

    operation: Operation
    loop_id: str
    triples: Annotated[tuple[Triple, ...], Meta(min_length=1)]
    timestamp: int


class CheckpointEventMessage(msgspec.Struct, frozen=True):
    """The news of a new checkpoint.

    Attributes:
        loop_id: The id of the loop.
        checkpoint_id: The id of the checkpoint, which is the key of its pointer in the bucket.
        bucket: The key-value bucket.
        timestamp: The time in Unix seconds.
    """

    loop_id: str
    checkpoint_id: str
    bucket: str
    timestamp: int


def read_message(data: bytes, message_type: type[_Message]) -> _Message:
    """Return the message in ``data``. Raises ``DecodeError`` with the wrong field."""
    try:
        message = msgspec.json.decode(data, type=message_type)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"the message is not a {message_type.__name__}: {error}") from error
    check_token(getattr(message, "loop_id", None))
    return message


def write_message(message: msgspec.Struct) -> bytes:
    """Return a message as JSON. Raises ``InvalidArgument`` with the wrong field."""
    try:
        data = msgspec.json.encode(message)
        msgspec.json.decode(data, type=type(message))
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError, OverflowError, TypeError) as error:
        raise InvalidArgument(f"{type(message).__name__} cannot be sent: {error}") from error
    return data


def check_token(loop_id: object) -> None:
    """Check that a loop id is one token of a NATS subject, so that it cannot name the subject of another loop.

    Raises ``DecodeError`` if it is empty, too long, or has white space, an invisible character, ``.``, ``*`` or ``>``.
    """
    if (
        not isinstance(loop_id, str)
        or not 0 < len(loop_id) <= MAX_TOKEN
        or not loop_id.isprintable()
        or set(loop_id) & set(" .*>")
    ):
        raise DecodeError(
            f"loop_id must be one token of a NATS subject: 1 to {MAX_TOKEN} visible characters without '.', '*' and "
            f"'>', got {describe(loop_id)}"
        )
