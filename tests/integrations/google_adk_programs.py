"""Programs that the tests of ADK's services run as processes: ``python -m tests.integrations.google_adk_programs``."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from google.adk.errors import StaleSessionError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions

from agent_memory_log.integrations.google_adk import MemoryLogSessionService, state
from tests.programs import acknowledge


def _die(*arguments: object) -> None:
    """Take the place of the function that stores changes of shared state."""
    del arguments
    os.kill(os.getpid(), signal.SIGKILL)


def change_shared_state_and_die(url: str) -> None:
    """Append an event with changes of every kind of state, and die before the shared ones are stored."""
    state.change_shared = _die  # type: ignore[assignment]  # it returns nothing

    async def main() -> None:
        service = MemoryLogSessionService(url)
        session = await service.get_session(app_name="shop", user_id="42", session_id="s1")
        assert session is not None
        delta = {"app:a": 1, "user:u": 2, "own": 3}
        await service.append_event(session, Event(id="e1", author="user", actions=EventActions(state_delta=delta)))

    asyncio.run(main())


def append_events(url: str, name: str, count: str) -> None:
    """Append events to a session, while another process does the same. Read it again whenever it has changed."""

    async def main() -> None:
        async with MemoryLogSessionService(url) as service:
            acknowledge("ready")
            sys.stdin.readline()
            for number in range(int(count)):
                delta = {f"app:{name}{number}": number, f"own {name}": number}
                event = Event(id=f"{name} {number}", author="user", actions=EventActions(state_delta=delta))
                while True:
                    session = await service.get_session(app_name="shop", user_id="42", session_id="s1")
                    assert session is not None
                    try:
                        await service.append_event(session, event)
                    except StaleSessionError:
                        continue
                    break

    asyncio.run(main())


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
