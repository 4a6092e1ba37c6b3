"""Checks the arguments of an index."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.recall.documents import Document
from agent_memory_log.recall.ranking.ranking import STARS


def check_document(document: Document) -> None:
    """Raise ``InvalidArgument`` if a field of a document is invalid."""
    if not document.id:
        raise InvalidArgument("id: expected a non-empty string")
    if not 0 <= document.importance <= STARS:
        raise InvalidArgument(f"importance: expected 0 to {STARS} stars, got {document.importance}")
    if not 0 <= document.confidence <= 1:
        raise InvalidArgument(f"confidence: expected a number from 0 to 1, got {document.confidence}")
    if not -(2**63) <= document.position < 2**63:
        raise InvalidArgument(f"position: expected a signed 64-bit integer, got {document.position}")
    _check_aware({"time": document.time, "expires": document.expires})


def check_search(top_k: int, times: Mapping[str, datetime | None]) -> None:
    """Raise ``InvalidArgument`` if ``top_k`` is below 1 or a time has no time zone."""
    if top_k < 1:
        raise InvalidArgument(f"top_k: expected an integer from 1, got {top_k}")
    _check_aware(times)


def _check_aware(times: Mapping[str, datetime | None]) -> None:
    for name, time in times.items():
        if time is not None and time.tzinfo is None:
            raise InvalidArgument(f"{name}: {time} has no time zone; pass an aware time, such as datetime.now(UTC)")
