"""The stable reasons for which policy, execution and the contracts of models refuse memories and answers.

A reason may contain a key or a scope that broke a rule, but never a value.
"""

from __future__ import annotations

CANDIDATES = "invalid_memory_candidates"
"""The prefix of the reasons for a proposal of memories that breaks its contract."""

INTENT = "invalid_retrieval_intent"
"""The prefix of the reasons for a retrieval plan that breaks its contract."""

ANSWER = "invalid_answer"
"""The prefix of the reasons for an answer that failed its audit."""

KEY_DENIED = "key_denied_execution"
SCOPE_DENIED = "scope_denied_execution"
MAX_CAPTURE_ITEMS = "max_capture_items"


def invalid_candidates(problem: str) -> str:
    """Return the reason for a problem with proposed memories.

    The problem is ``not_object``, ``items``, ``item``, ``missing_keys``, ``key``, ``value``, ``value_too_long``,
    ``scope``, ``ttl_days``, ``confidence`` or ``too_many_items``.
    """
    return f"{CANDIDATES}:{problem}"


def invalid_intent(problem: str) -> str:
    """Return the reason for a problem with a retrieval plan.

    The problem is ``not_object``, ``kind``, ``query``, ``query_too_long``, ``top_k``, ``scopes``, ``scope_item``,
    ``scope_not_allowed:<scope>`` or ``include_preference_keys``.
    """
    return f"{INTENT}:{problem}"


def invalid_answer(problem: str) -> str:
    """Return the reason for a problem with an answer.

    The problem is ``memory_keys_out_of_context``, ``too_long`` or ``memory_declared_but_not_applied``.
    """
    return f"{ANSWER}:{problem}"


def key_not_allowed(key: str) -> str:
    """Return the reason for a key that policy does not allow."""
    return f"memory_key_not_allowed_policy:{key}"


def scope_not_allowed(scope: str) -> str:
    """Return the reason for a scope that policy does not allow."""
    return f"memory_scope_not_allowed_policy:{scope}"
