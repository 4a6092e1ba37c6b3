"""Names what a residual of another provider holds besides text. Other providers do not receive it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from agent_memory_log.transcript.json_types import is_map

_FRAME = frozenset(
    {
        *("id", "type", "role", "status", "index", "phase", "prefix", "name", "namespace", "execution", "caller"),
        *("cache_control", "cachePoint", "prompt_cache_breakpoint", "citations", "logprobs"),
    }
)
"""The fields that say how a provider sends content. Without them, the content is the same."""

_FAILED = "error"
"""The status of a failed result on Bedrock."""


def content_beside_text(residual: object) -> Iterator[str]:
    """Yield the name of each part and each field that is content of its own: ``image``, ``annotations``, …"""
    if not is_map(residual):
        return
    part, fields, inside = (residual.get(key) for key in ("part", "fields", "inside"))
    if is_map(part):
        yield from _unless_frame(str(part.get("type") or next(iter(part), "part")), part)
    if is_map(fields):
        for name, value in fields.items():
            yield from _unless_frame(str(name), value)
    spans = residual.get("parts")
    nested = [
        *(cast("Sequence[object]", spans) if isinstance(spans, (list, tuple)) else ()),
        *(inside.values() if is_map(inside) else ()),
        residual.get("message"),
    ]
    for item in nested:
        yield from content_beside_text(item)


def _unless_frame(name: str, value: object) -> Iterator[str]:
    if value == _FAILED or (name not in _FRAME and value not in (None, False, "", [], {})):
        yield name
