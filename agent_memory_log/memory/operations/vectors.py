"""The operations on vectors that a client makes: list texts without vectors, store vectors, drop them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from agent_memory_log.memory.operations.fields import Scopes
from agent_memory_log.memory.records.arguments import Operation
from agent_memory_log.memory.records.vectors import TextToEmbed, TextVectors, VectorsReport

_Model = Annotated[str, Meta(description="The name of the embedding model.")]
_Dimension = Annotated[int, Meta(ge=1, le=16_384, description="The number of components of a vector.")]


class ListTextsToEmbed(Operation[tuple[TextToEmbed, ...]], frozen=True):
    """Return texts of records and of messages in linked runs that have no vectors of a model yet.

    A result has at most about a million characters, or one text. Store the vectors and call again for more texts.

    Raises:
        InvalidArgument: The memory has vectors of another model, or vectors need an extra that is not installed.
    """

    positional = 2

    model: _Model
    dimension: _Dimension
    limit: Annotated[int, Meta(ge=1, le=128, description="The most texts of the result.")] = 128
    scopes: Scopes = None


class StoreVectors(Operation[VectorsReport], frozen=True):
    """Store the vectors of texts, so that search compares them with the vectors of a query.

    A text that is unknown, was forgotten or changed, or has vectors already, is left out.

    Raises:
        InvalidArgument: The memory has vectors of another model, or vectors have another form. Nothing is stored.
    """

    writes = True
    right = "write"
    positional = 3

    model: _Model
    dimension: _Dimension
    vectors: Annotated[tuple[TextVectors, ...], Meta(description="The vectors of at most 128 texts.")]


class DropVectors(Operation[int], frozen=True):
    """Erase the vectors of all texts, so that another model can embed them. Return how many vectors were erased.

    The texts stay. Until they are embedded again, search compares words only.
    """

    writes = True
    right = "erase"

    scopes: Scopes = None
