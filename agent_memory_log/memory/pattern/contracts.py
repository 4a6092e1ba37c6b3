"""The JSON that a session asks of a model, as schemas. Proposals and plans are read by ``policy``, with its reasons."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from agent_memory_log.memory.extraction.contracts import PreferenceItem


class _Contract(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class Proposals(_Contract):
    """What a message says that is worth remembering."""

    items: tuple[PreferenceItem, ...]


class Plan(_Contract):
    """What to look for in memory."""

    kind: Literal["retrieve_memory"]
    query: Annotated[str, Field(min_length=1)]
    top_k: Annotated[int, Field(ge=1)] | None = None
    scopes: Annotated[tuple[str, ...], Field(min_length=1)] | None = None


class Answer(_Contract):
    """The answer, and the keys of the memories that it follows."""

    answer: str
    used_memory_keys: tuple[str, ...]
