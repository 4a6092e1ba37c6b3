"""The scripts of the three sessions, and the functions that play each in its own process.

``play_all`` starts ``python -m examples.capture_and_apply.sessions NAME``. That process plays one session on the store
in ``AMLOG_STORE`` and prints its result as a line of JSON.
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
from examples.capture_and_apply.verifiers import VERIFIERS

PATIENCE = 120
"""The time limit of a session, in seconds."""

PRINCIPAL = Principal(tenant="demo", scopes={"user": "42"})
AGENT = "incident-desk"

SETTINGS = MemorySettings(
    policy=PolicySettings(
        allowed_keys=frozenset({"language", "response_style", "update_channel", "declared_tier"}),
        allowed_scopes=frozenset({"user"}),
    ),
    # Any user can claim a tier. The model may propose it, but execution blocks it.
    execution=ExecutionSettings(denied_keys=frozenset({"declared_tier"})),
)

_UPDATE = (
    "Incident update: card payments have been failing since 09:40 UTC, and a fix is being rolled out. "
    "The next update follows by email within the hour."
)


class SessionScript(msgspec.Struct, frozen=True):
    """The script of a session.

    Attributes:
        captures: Whether the session captures memories. Otherwise it answers.
        message: The user's message.
        answers: The model's answers, in the order of its requests.
    """

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
"""The sessions by name, in playing order."""


class PlayedSession(msgspec.Struct, frozen=True):
    """A finished session: its name, its script, the id of its process, and its result."""

    name: str
    script: SessionScript
    process: int
    result: SessionResult


def play_all(url: str) -> Iterator[PlayedSession]:
    """Play all sessions in order on the store at ``url``, and yield their results.

    - ``capture``: The user states a language, a style and an update channel, and claims a tier. Policy allows all four
      keys. Execution blocks ``declared_tier`` with ``key_denied_execution``, so three memories are written.
    - ``respond``: The user asks for an update on the payment incident. The answer follows the captured memories.
    - ``overreach``: The model cites ``declared_tier``, which was not retrieved. The session is stopped with
      ``invalid_answer:memory_keys_out_of_context``.

    Raises ``InvalidArgument`` for a store in memory, and ``RuntimeError`` with the message of a failed process.
    """
    if url.startswith("memory:"):
        raise InvalidArgument("the sessions need a store that outlives a process, such as sqlite:///demo.db")
    return (_play_in_process(url, name, script) for name, script in SESSIONS.items())


def _play_in_process(url: str, name: str, script: SessionScript) -> PlayedSession:
    process = subprocess.Popen(  # noqa: S603  # runs this module, without a shell
        [sys.executable, "-m", __name__, name],
        env={**os.environ, "AMLOG_STORE": url},  # the URL may hold a password, and every user can read arguments
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        try:
            out, err = process.communicate(timeout=PATIENCE)
        except BaseException:  # an interrupt must end the session's process too
            process.kill()
            raise
    if process.returncode:
        raise RuntimeError(f"the session {name!r} failed: {err.decode(errors='replace').strip()}")
    return PlayedSession(name, script, process.pid, msgspec.json.decode(out, type=SessionResult))


def play(url: str, name: str) -> SessionResult:
    """Play one session on the store at ``url`` and return its result."""
    script = SESSIONS[name]
    with open_sync_store(url) as store:
        client = SyncMemoryClient(store, policy=SETTINGS.memory_policy(), execution=SETTINGS.memory_execution())
        me = client.of(PRINCIPAL)
        session = AuditedSession(me, ScriptedModel(script.answers), settings=SETTINGS, verifiers=VERIFIERS)
        run = f"demo-{name}"
        logged = store.append_events(AGENT, run, new_event(UserMessage(message=script.message))).events[0]
        if script.captures:
            me.link_run(AGENT, run)  # explain can then show the user's message
            return session.capture(script.message, evidence=[Evidence(AGENT, run, logged.seq)], run_id=run)
        return session.respond(script.message, run_id=run)


if __name__ == "__main__":
    os.write(1, msgspec.json.encode(play(os.environ["AMLOG_STORE"], sys.argv[1])) + b"\n")
