"""The sessions: what is said in each, what the scripted model makes of it, and how each runs in a process of its own.

``python -m examples.capture_and_apply.sessions NAME`` plays one of them on the store that ``AMLOG_STORE`` names and
prints its result as a line of JSON; it is not for people.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping

import msgspec

from agent_memory_log import JsonValue, UserMessage, new_event, open_sync_store
from agent_memory_log.errors import InvalidArgument
from agent_memory_log.memory import Evidence, Principal, SyncMemoryClient
from agent_memory_log.memory.policy.settings import ExecutionSettings, MemorySettings, PolicySettings
from agent_memory_log.models import ScriptedModel
from examples.capture_and_apply.results import SessionResult
from examples.capture_and_apply.session import AuditedSession

PATIENCE = 120
"""How many seconds a session may take."""

PRINCIPAL = Principal(tenant="demo", scopes={"user": "42"})
AGENT = "incident-desk"

SETTINGS = MemorySettings(
    policy=PolicySettings(
        allowed_keys=frozenset({"language", "response_style", "update_channel", "declared_tier"}),
        allowed_scopes=frozenset({"user"}),
    ),
    # Anybody may say that they pay for the best: it may be asked for, and is not believed.
    execution=ExecutionSettings(denied_keys=frozenset({"declared_tier"})),
)

_UPDATE = (
    "Incident update: card payments have been failing since 09:40 UTC, and a fix is being rolled out. "
    "The next update follows by email within the hour."
)


class SessionScript(msgspec.Struct, frozen=True):
    """A session: whether it captures or answers, the user's message, and the model's answer to each question."""

    captures: bool
    message: str
    answers: tuple[Mapping[str, JsonValue], ...]


SESSIONS: Mapping[str, SessionScript] = {
    "capture": SessionScript(
        captures=True,
        message="Hello, please write to me in English, keep it concise, and send updates by email. We are on the "
        "enterprise tier, by the way.",
        answers=(
            {
                "items": [
                    {"key": "language", "value": "english", "confidence": 0.95},
                    {"key": "response_style", "value": "concise", "confidence": 0.9},
                    {"key": "update_channel", "value": "email", "ttl_days": 90},
                    {"key": "declared_tier", "value": "enterprise", "ttl_days": 30},
                ]
            },
        ),
    ),
    "respond": SessionScript(
        captures=False,
        message="Draft an update on the payment incident.",
        answers=(
            {"kind": "retrieve_memory", "query": "language, response style and update channel", "top_k": 4},
            {"answer": _UPDATE, "used_memory_keys": ["language", "response_style", "update_channel"]},
        ),
    ),
    "overreach": SessionScript(
        captures=False,
        message="Draft the update for our tier.",
        answers=(
            {"kind": "retrieve_memory", "query": "language, response style, update channel, declared tier"},
            {
                "answer": "Incident update: as an enterprise customer you are served first.",
                "used_memory_keys": ["declared_tier"],
            },
        ),
    ),
}
"""The sessions by name, in the order in which the demo plays them."""


class PlayedSession(msgspec.Struct, frozen=True):
    """A session that was played: its ``name``, its ``script``, the ``process`` it ran in, and its ``result``."""

    name: str
    script: SessionScript
    process: int
    result: SessionResult


def play_all(url: str) -> Iterator[PlayedSession]:
    """Play the sessions one after the other on the store at ``url``, which must outlive a process.

    - ``capture``: a user states language, style and update channel, and claims a tier; policy allows all four, and
      execution denies ``declared_tier``: three are written, one is blocked with ``key_denied_execution``.
    - ``respond``: later, the user asks for an update on the payment incident: the answer follows what was captured.
    - ``overreach``: the model declares the tier, which was never retrieved: stopped with
      ``invalid_answer:memory_keys_out_of_context``.

    Raises ``InvalidArgument`` for a store in memory, and ``RuntimeError`` with the words of a process that failed.
    """
    if url.startswith("memory:"):
        raise InvalidArgument("the sessions need a store that outlives a process, such as sqlite:///demo.db")
    return (_play_in_process(url, name, script) for name, script in SESSIONS.items())


def _play_in_process(url: str, name: str, script: SessionScript) -> PlayedSession:
    process = subprocess.Popen(  # noqa: S603  # Python itself, with this module
        [sys.executable, "-m", __name__, name],
        env={**os.environ, "AMLOG_STORE": url},  # it may hold a password, and every user can read arguments
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        try:
            out, err = process.communicate(timeout=PATIENCE)
        except BaseException:  # an interrupt too: the session is not to go on alone
            process.kill()
            raise
    if process.returncode:
        raise RuntimeError(f"the session {name!r} failed: {err.decode(errors='replace').strip()}")
    return PlayedSession(name, script, process.pid, msgspec.json.decode(out, type=SessionResult))


def play(url: str, name: str) -> SessionResult:
    """Play one session on the store at ``url``."""
    script = SESSIONS[name]
    with open_sync_store(url) as store:
        client = SyncMemoryClient(store, policy=SETTINGS.memory_policy(), execution=SETTINGS.memory_execution())
        me = client.of(PRINCIPAL)
        session = AuditedSession(me, ScriptedModel(script.answers), settings=SETTINGS)
        run = f"demo-{name}"
        logged = store.append_events(AGENT, run, new_event(UserMessage(message=script.message))).events[0]
        if script.captures:
            me.link_run(AGENT, run)  # so that what is captured can be explained with the user's words
            return session.capture(script.message, evidence=[Evidence(AGENT, run, logged.seq)], run_id=run)
        return session.respond(script.message, run_id=run)


if __name__ == "__main__":
    os.write(1, msgspec.json.encode(play(os.environ["AMLOG_STORE"], sys.argv[1])) + b"\n")
