"""Ids of agents and runs that are made of a framework's own ids, which may hold any text of any length."""

from __future__ import annotations

from hashlib import sha256

from agent_memory_log.backend_kit import MAX_ID_LENGTH


def joined_id(*parts: str) -> str:
    """Join ids of a framework to an id for a store. Different parts give different ids.

    ``joined_id("thread", "user/42")`` is ``thread/user%2F42``. A result of more than 512 characters ends in the SHA-256
    of the whole instead. The first part should be a constant: an id must not be empty, and an agent's id must not begin
    with ``@``.
    """
    joined = "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)
    if len(joined) <= MAX_ID_LENGTH:
        return joined
    # No shorter id has "%~", because each of its "%" belongs to "%25" or "%2F".
    ending = "%~" + sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()
    return joined[: MAX_ID_LENGTH - len(ending)] + ending
