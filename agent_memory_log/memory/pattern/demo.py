"""The scenario of ``amlog memory demo``: three sessions, each a process of its own, that share nothing but a store."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import msgspec

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.memory.pattern.demo_session import SESSIONS, SessionScript
from agent_memory_log.memory.pattern.results import PatternResult

_PATIENCE = 120


class Scene(msgspec.Struct, frozen=True):
    """A session that was played: its ``name``, its ``script``, the ``process`` it ran in, and its ``result``."""

    name: str
    script: SessionScript
    process: int
    result: PatternResult


def demo(url: str) -> Iterator[Scene]:
    """Play the sessions one after the other on the store at ``url``, which must outlive a process.

    - ``capture``: a user states language, style and update channel, and claims a tier; policy allows all four, and
      execution denies ``declared_tier``: three are written, one is blocked with ``key_denied_execution``.
    - ``respond``: later, the user asks for an update on the payment incident: the answer follows what was captured.
    - ``overreach``: the model declares the tier, which was never retrieved: stopped with
      ``invalid_answer:memory_keys_out_of_context``.

    Raises ``InvalidArgument`` for a store in memory; ``RuntimeError`` with what a process said that failed.
    """
    if url.startswith("memory:"):
        raise InvalidArgument("the demo needs a store that outlives a process, such as sqlite:///demo.db")
    return (_played(url, name, script) for name, script in SESSIONS.items())


def _played(url: str, name: str, script: SessionScript) -> Scene:
    process = subprocess.Popen(  # noqa: S603  # Python itself, with a module of ours
        [sys.executable, "-m", "agent_memory_log.memory.pattern.demo_session", url, name],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        try:
            out, err = process.communicate(timeout=_PATIENCE)
        except BaseException:  # an interrupt too: the session is not to go on alone
            process.kill()
            raise
    if process.returncode:
        raise RuntimeError(f"the session {name!r} failed: {err.decode(errors='replace').strip()}")
    return Scene(name, script, process.pid, msgspec.json.decode(out, type=PatternResult))
