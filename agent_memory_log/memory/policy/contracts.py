"""Reads the JSON with which a model proposes memories or plans a retrieval.

Each field must have its type, or the answer is refused with a stable reason. A lifetime or confidence outside its
bounds is clamped. Unknown fields are ignored.
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
"""The kind of a retrieval plan. No other kind exists."""

MAX_QUERY = 240
"""The default limit of a query, in characters."""

MAX_TOP_K = 6
DEFAULT_TOP_K = 4

_MAX_TTL_DAYS = 365


class RetrievalIntent(msgspec.Struct, frozen=True):
    """The search that a model plans.

    Attributes:
        query: The query.
        top_k: The number of hits.
        scopes: The scopes, without duplicates. None: the plan names no scopes, so all that execution allows are meant.
        include_preference_keys: The keys of the preferences that the search must find although they share no word with
            the query. Pass them to ``search`` as ``boost_preferences``.
    """

    query: str
    top_k: int = DEFAULT_TOP_K
    scopes: tuple[str, ...] | None = None
    include_preference_keys: tuple[str, ...] = ()


def read_candidates(
    raw: str,
    *,
    max_items: int = MAX_CAPTURE,
    max_value_chars: int = MAX_VALUE,
    source: Source = Source("run"),  # noqa: B008  # frozen
    evidence: tuple[Evidence, ...] = (),
) -> tuple[Candidate, ...]:
    """Read preferences from ``{"items": [{"key", "value", "scope", "ttl_days", "confidence"}, …]}``.

    Only ``key`` and ``value`` are required. A null counts as a missing field. ``ttl_days`` is clamped to 1 to 365 and
    ``confidence`` to 0 to 1. A number must not be a boolean, NaN or an infinity. The default ``scope`` is the
    principal's home scope.

    Args:
        raw: The answer of the model.
        max_items: The largest number of items.
        max_value_chars: The limit of a value, in characters.
        source: The source of every candidate.
        evidence: The evidence of every candidate.

    Raises:
        MemoryStopped: The answer breaks the contract. The reason is ``invalid_memory_candidates:…``, with ``items`` if
            the answer is not JSON.
        InvalidArgument: A limit is not an integer from 1.
    """
    check_limit(max_items, "max_items")
    check_limit(max_value_chars, "max_value_chars")
    answer = _object(raw, invalid_candidates, broken="items")
    items = answer.get("items")
    if not isinstance(items, list):
        _stop(invalid_candidates("items"), "items must be a list")
    items = cast("list[object]", items)
    if len(items) > max_items:
        _stop(invalid_candidates("too_many_items"), f"got {len(items)} items; the limit is {max_items}")
    return tuple(
        _candidate(item, f"items[{index}]", max_value_chars, source, evidence) for index, item in enumerate(items)
    )


def read_intent(
    raw: str,
    *,
    allowed_scopes: Collection[str] | None = None,
    max_query_chars: int = MAX_QUERY,
    max_top_k: int = MAX_TOP_K,
    default_top_k: int = DEFAULT_TOP_K,
) -> RetrievalIntent:
    """Read a retrieval plan from JSON.

        {"kind": "retrieve_memory", "query", "top_k", "scopes", "include_preference_keys"}

    Only ``kind`` and ``query`` are required. A null counts as a missing field.

    Args:
        raw: The answer of the model.
        allowed_scopes: The scopes that the plan may name. None: any scope.
        max_query_chars: The limit of the query, in characters.
        max_top_k: The largest ``top_k``.
        default_top_k: The ``top_k`` of a plan without one, at most ``max_top_k``.

    Raises:
        MemoryStopped: The answer breaks the contract. The reason is ``invalid_retrieval_intent:…``, with ``kind`` if
            the answer is not JSON.
        InvalidArgument: A limit is not an integer from 1.
    """
    check_limit(max_query_chars, "max_query_chars")
    check_limit(max_top_k, "max_top_k")
    check_limit(default_top_k, "default_top_k")
    answer = _object(raw, invalid_intent, broken="kind")
    if answer.get("kind") != RETRIEVE:
        _stop(invalid_intent("kind"), f"kind must be {RETRIEVE!r}")
    query = _text(answer.get("query"), invalid_intent("query"), "query")
    if len(query) > max_query_chars:
        _stop(invalid_intent("query_too_long"), f"query has {len(query)} characters; the limit is {max_query_chars}")
    top_k = answer.get("top_k")
    if top_k is None:
        top_k = min(default_top_k, max_top_k)
    if type(top_k) is not int or not 1 <= top_k <= max_top_k:
        _stop(invalid_intent("top_k"), f"top_k must be an integer from 1 to {max_top_k}")
    return RetrievalIntent(query, top_k, _scopes(answer.get("scopes"), allowed_scopes), _preference_keys(answer))


def _preference_keys(answer: Mapping[str, object]) -> tuple[str, ...]:
    name = "include_preference_keys"
    keys = answer.get(name)
    if keys is None:
        return ()
    if not isinstance(keys, list):
        _stop(invalid_intent(name), f"{name} must be a list")
    items = enumerate(cast("list[object]", keys))
    return tuple(dict.fromkeys(_text(key, invalid_intent(name), f"{name}[{index}]") for index, key in items))


def _scopes(scopes: object, allowed: Collection[str] | None) -> tuple[str, ...] | None:
    if scopes is None:
        return None
    if not isinstance(scopes, list) or not scopes:
        _stop(invalid_intent("scopes"), "scopes must be a non-empty list")
    unique = dict.fromkeys(
        _text(scope, invalid_intent("scope_item"), f"scopes[{index}]")
        for index, scope in enumerate(cast("list[object]", scopes))
    )
    denied = min((scope for scope in unique if allowed is not None and scope not in allowed), default=None)
    if denied is not None:
        _stop(invalid_intent(f"scope_not_allowed:{denied}"), f"policy does not allow the scope {denied!r}")
    return tuple(unique)


def _candidate(
    item: object, path: str, max_value_chars: int, source: Source, evidence: tuple[Evidence, ...]
) -> Candidate:
    if not isinstance(item, dict):
        _stop(invalid_candidates("item"), f"{path} must be an object")
    fields = cast("dict[str, object]", item)
    if not {"key", "value"} <= fields.keys():
        _stop(invalid_candidates("missing_keys"), f"{path} must have key and value")
    key, value = (_text(fields[name], invalid_candidates(name), f"{path}.{name}") for name in ("key", "value"))
    if len(value) > max_value_chars:
        _stop(
            invalid_candidates("value_too_long"),
            f"{path}.value has {len(value)} characters; the limit is {max_value_chars}",
        )
    scope = fields.get("scope")
    scope = "" if scope is None else _text(scope, invalid_candidates("scope"), f"{path}.scope")
    days = _number(fields.get("ttl_days"), 1, _MAX_TTL_DAYS, "ttl_days", path)
    confidence = _number(fields.get("confidence"), 0, 1, "confidence", path)
    return Candidate(
        Preference(key, value),
        scope=scope,
        ttl_days=None if days is None else int(days),
        confidence=DEFAULT_CONFIDENCE if confidence is None else round(confidence, 3),
        source=source,
        evidence=evidence,
    )


def _number(value: object, least: int, most: int, name: str, path: str) -> float | None:
    if value is None:
        return None
    # An integer may have more digits than a float can hold.
    is_number = type(value) is int or (isinstance(value, float) and math.isfinite(value))
    if not is_number:
        _stop(invalid_candidates(name), f"{path}.{name} must be a number")
    return float(min(max(cast("float", value), least), most))


def _text(value: object, reason: str, path: str) -> str:
    """Return the text without surrounding white space, or raise ``MemoryStopped`` if it is blank or not text."""
    text = value.strip() if isinstance(value, str) else ""
    try:
        check_text(text, "")
    except NotJson:
        text = ""
    if not text:
        _stop(reason, f"{path} must be text with a character other than white space")
    return text


def _object(raw: str, invalid: Callable[[str], str], *, broken: str) -> Mapping[str, object]:
    try:
        # Python's decoder accepts NaN and Infinity, so the check of the field refuses them and names the field.
        decoded: object = json.loads(raw)
    except (ValueError, TypeError, RecursionError) as error:
        raise MemoryStopped(
            f"the answer must be JSON; decoding raised {type(error).__name__}", reason=invalid(broken)
        ) from error
    if not isinstance(decoded, dict):
        _stop(invalid("not_object"), "the answer must be a JSON object")
    return cast("dict[str, object]", decoded)


def _stop(reason: str, message: str) -> NoReturn:
    raise MemoryStopped(f"{message} ({reason})", reason=reason)
