"""The stable reasons of the two boundaries: text to match on, in reports, in events and across processes.

A reason names a key or a scope where that is what broke a rule, and never a value.
"""

from __future__ import annotations

CANDIDATES = "invalid_memory_candidates"
"""A model's proposals broke their contract; what follows the colon says where."""

INTENT = "invalid_retrieval_intent"
"""A model's plan of a retrieval broke its contract; what follows the colon says where."""

ANSWER = "invalid_answer"
"""An answer declared memories that were not retrieved, followed none of them, or was too long."""

KEY_DENIED = "key_denied_execution"
SCOPE_DENIED = "scope_denied_execution"
MAX_CAPTURE_ITEMS = "max_capture_items"


def invalid_candidates(what: str) -> str:
    """``what`` is ``not_object``, ``items``, ``item``, ``missing_keys``, ``key``, ``value``, ``value_too_long``,
    ``scope``, ``ttl_days``, ``confidence`` or ``too_many_items``.
    """
    return f"{CANDIDATES}:{what}"


def invalid_intent(what: str) -> str:
    """``what`` is ``not_object``, ``kind``, ``query``, ``query_too_long``, ``top_k``, ``scopes``, ``scope_item`` or
    ``scope_not_allowed:<scope>``.
    """
    return f"{INTENT}:{what}"


def invalid_answer(what: str) -> str:
    """``what`` is ``memory_keys_out_of_context``, ``too_long`` or ``memory_declared_but_not_applied``."""
    return f"{ANSWER}:{what}"


def key_not_allowed(key: str) -> str:
    """Policy has not allowed the key."""
    return f"memory_key_not_allowed_policy:{key}"


def scope_not_allowed(scope: str) -> str:
    """Policy has not allowed the scope."""
    return f"memory_scope_not_allowed_policy:{scope}"
