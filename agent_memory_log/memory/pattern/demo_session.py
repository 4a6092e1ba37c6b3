"""The sessions of the demo: what is said in each, and what the scripted model makes of it.

``python -m agent_memory_log.memory.pattern.demo_session URL NAME`` plays one of them in a process of its own and prints
its result as a line of JSON; not for people.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

import msgspec

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.event import new_event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import UserMessage
from agent_memory_log.memory.pattern.results import PatternResult
from agent_memory_log.memory.pattern.session import PatternSession
from agent_memory_log.memory.records.principals import Principal
from agent_memory_log.memory.records.record import Evidence
from agent_memory_log.memory.settings import ExecutionSettings, MemorySettings, PolicySettings
from agent_memory_log.memory.sync import SyncMemoryClient
from agent_memory_log.models import ScriptedModel
from agent_memory_log.opening import open_sync_store

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
    """A session: whether it captures or answers, what the user says, and the answer to each question to the model."""

    captures: bool
    said: str
    answers: tuple[Mapping[str, JsonValue], ...]


SESSIONS: Mapping[str, SessionScript] = {
    "capture": SessionScript(
        captures=True,
        said="Hello, please write to me in English, keep it concise, and send updates by email. We are on the "
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
        said="Draft an update on the payment incident.",
        answers=(
            {"kind": "retrieve_memory", "query": "language, response style and update channel", "top_k": 4},
            {"answer": _UPDATE, "used_memory_keys": ["language", "response_style", "update_channel"]},
        ),
    ),
    "overreach": SessionScript(
        captures=False,
        said="Draft the update for our tier.",
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


def play(url: str, name: str) -> PatternResult:
    """Play one session on the store at ``url``. Raises ``InvalidArgument`` for a name there is none of."""
    script = SESSIONS.get(name)
    if script is None:
        raise InvalidArgument(f"there is no session {name!r}; there are {', '.join(SESSIONS)}")
    with open_sync_store(url) as store:
        client = SyncMemoryClient(store, policy=SETTINGS.memory_policy(), execution=SETTINGS.memory_execution())
        me = client.of(PRINCIPAL)
        session = PatternSession(me, ScriptedModel(script.answers), settings=SETTINGS)
        run = f"demo-{name}"
        logged = store.append_events(AGENT, run, new_event(UserMessage(message=script.said))).events[0]
        if script.captures:
            me.link_run(AGENT, run)  # so that what is captured can be explained with the user's words
            return session.capture(script.said, evidence=[Evidence(AGENT, run, logged.seq)], run_id=run)
        return session.respond(script.said, run_id=run)


if __name__ == "__main__":
    os.write(1, msgspec.json.encode(play(sys.argv[1], sys.argv[2])) + b"\n")
