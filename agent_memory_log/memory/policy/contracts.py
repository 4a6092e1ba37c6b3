"""The JSON that a model proposes memories and plans retrievals in, read as what it must be, or refused with a reason.

Strict about what a field is, lenient about what is too large or too small where that does no harm: a life and a
confidence are cut to their bounds. What else stands in the JSON is left alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping
from typing import NoReturn, cast

import msgspec

from agent_memory_log.errors import MemoryStopped
from agent_memory_log.events.jsonvalue import NotJson, check_text
from agent_memory_log.memory.policy.reasons import invalid_candidates, invalid_intent
from agent_memory_log.memory.policy.rules import MAX_CAPTURE, MAX_VALUE, check_limit
from agent_memory_log.memory.records.candidates import Candidate
from agent_memory_log.memory.records.kinds import Preference
from agent_memory_log.memory.records.record import DEFAULT_CONFIDENCE, Evidence, Source

RETRIEVE = "retrieve_memory"
"""The kind of the one plan there is."""

MAX_QUERY = 240
"""How many characters a query may have, where nothing else is said."""

MAX_TOP_K = 6
DEFAULT_TOP_K = 4

_MAX_TTL_DAYS = Preference.max_ttl_days or 1


class RetrievalIntent(msgspec.Struct, frozen=True):
    """What a model plans to look for.

    ``scopes`` are those it named, each once (None: it named none, and those that execution allows are meant).
    """

    query: str
    top_k: int = DEFAULT_TOP_K
    scopes: tuple[str, ...] | None = None


def read_candidates(
    raw: str,
    *,
    max_items: int = MAX_CAPTURE,
    max_value_chars: int = MAX_VALUE,
    source: Source = Source("run"),  # noqa: B008  # frozen
    evidence: tuple[Evidence, ...] = (),
) -> tuple[Candidate, ...]:
    """The preferences of ``{"items": [{"key", "value", "scope", "ttl_days", "confidence"}, …]}``.

    Only ``key`` and ``value`` are required; a null is as good as nothing. ``ttl_days`` is cut to 1 to 365 and
    ``confidence`` to 0 to 1; a number is a number, never a boolean, NaN or an infinity. A ``scope`` left out is the
    principal's home. Each candidate gets ``source`` and ``evidence``.

    Raises ``MemoryStopped`` with a reason ``invalid_memory_candidates:…``; what is not JSON is ``…:items``.
    """
    check_limit(max_items, "max_items")
    check_limit(max_value_chars, "max_value_chars")
    answer = _object(raw, invalid_candidates, broken="items")
    items = answer.get("items")
    if not isinstance(items, list):
        _stop(invalid_candidates("items"), "items must be a list")
    items = cast("list[object]", items)
    if len(items) > max_items:
        _stop(invalid_candidates("too_many_items"), f"{len(items)} items, where {max_items} are allowed")
    return tuple(
        _candidate(item, f"items[{place}]", max_value_chars, source, evidence) for place, item in enumerate(items)
    )


def read_intent(
    raw: str,
    *,
    allowed_scopes: Collection[str] | None = None,
    max_query_chars: int = MAX_QUERY,
    max_top_k: int = MAX_TOP_K,
    default_top_k: int = DEFAULT_TOP_K,
) -> RetrievalIntent:
    """The plan ``{"kind": "retrieve_memory", "query", "top_k", "scopes"}``.

    ``top_k``, 1 to ``max_top_k``, and ``scopes`` may be left out or null. ``allowed_scopes`` are those that policy
    allows (None: any).

    Raises ``MemoryStopped`` with a reason ``invalid_retrieval_intent:…``; what is not JSON is ``…:kind``.
    """
    check_limit(max_query_chars, "max_query_chars")
    check_limit(max_top_k, "max_top_k")
    check_limit(default_top_k, "default_top_k")
    answer = _object(raw, invalid_intent, broken="kind")
    if answer.get("kind") != RETRIEVE:
        _stop(invalid_intent("kind"), f"kind must be {RETRIEVE!r}")
    query = _text(answer.get("query"), invalid_intent("query"), "query")
    if len(query) > max_query_chars:
        _stop(invalid_intent("query_too_long"), f"query has {len(query)} characters, over {max_query_chars}")
    top_k = answer.get("top_k")
    if top_k is None:
        top_k = min(default_top_k, max_top_k)
    if type(top_k) is not int or not 1 <= top_k <= max_top_k:
        _stop(invalid_intent("top_k"), f"top_k must be an integer from 1 to {max_top_k}")
    return RetrievalIntent(query, top_k, _scopes(answer.get("scopes"), allowed_scopes))


def _scopes(scopes: object, allowed: Collection[str] | None) -> tuple[str, ...] | None:
    if scopes is None:
        return None
    if not isinstance(scopes, list) or not scopes:
        _stop(invalid_intent("scopes"), "scopes must be a list that is not empty")
    named = dict.fromkeys(
        _text(scope, invalid_intent("scope_item"), "each of scopes") for scope in cast("list[object]", scopes)
    )
    denied = min((scope for scope in named if allowed is not None and scope not in allowed), default=None)
    if denied is not None:
        _stop(invalid_intent(f"scope_not_allowed:{denied}"), f"policy does not allow the scope {denied!r}")
    return tuple(named)


def _candidate(
    item: object, where: str, max_value_chars: int, source: Source, evidence: tuple[Evidence, ...]
) -> Candidate:
    if not isinstance(item, dict):
        _stop(invalid_candidates("item"), f"{where} must be an object")
    fields = cast("dict[str, object]", item)
    if not {"key", "value"} <= fields.keys():
        _stop(invalid_candidates("missing_keys"), f"{where} must have key and value")
    key, value = (_text(fields[name], invalid_candidates(name), f"{where}.{name}") for name in ("key", "value"))
    if len(value) > max_value_chars:
        _stop(
            invalid_candidates("value_too_long"), f"{where}.value has {len(value)} characters, over {max_value_chars}"
        )
    scope = fields.get("scope")
    scope = "" if scope is None else _text(scope, invalid_candidates("scope"), f"{where}.scope")
    days = _number(fields.get("ttl_days"), 1, _MAX_TTL_DAYS, "ttl_days", where)
    confidence = _number(fields.get("confidence"), 0, 1, "confidence", where)
    return Candidate(
        Preference(key, value),
        scope=scope,
        ttl_days=None if days is None else int(days),
        confidence=DEFAULT_CONFIDENCE if confidence is None else round(confidence, 3),
        source=source,
        evidence=evidence,
    )


def _number(value: object, least: int, most: int, name: str, where: str) -> float | None:
    if value is None:
        return None
    # An integer may have more digits than a float can hold.
    is_number = type(value) is int or (isinstance(value, float) and math.isfinite(value))
    if not is_number:
        _stop(invalid_candidates(name), f"{where}.{name} must be a number")
    return float(min(max(cast("float", value), least), most))


def _text(value: object, reason: str, where: str) -> str:
    """A text without the white space around it. Raises ``MemoryStopped`` with the reason if it is blank or no text."""
    text = value.strip() if isinstance(value, str) else ""
    try:
        check_text(text, "")
    except NotJson:
        text = ""
    if not text:
        _stop(reason, f"{where} must be text that is not white space alone")
    return text


def _object(raw: str, invalid: Callable[[str], str], *, broken: str) -> Mapping[str, object]:
    try:
        # Python's own decoder reads NaN and Infinity, so that they are refused by the field they stand in.
        decoded: object = json.loads(raw)
    except (ValueError, TypeError, RecursionError) as error:
        raise MemoryStopped(f"the answer is not JSON: {type(error).__name__}", reason=invalid(broken)) from error
    if not isinstance(decoded, dict):
        _stop(invalid("not_object"), "the answer must be an object")
    return cast("dict[str, object]", decoded)


def _stop(reason: str, message: str) -> NoReturn:
    raise MemoryStopped(f"{message} ({reason})", reason=reason)
