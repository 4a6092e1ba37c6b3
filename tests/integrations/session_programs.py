"""Programs that the tests of sessions run as processes: ``python -m tests.integrations.session_programs NAME …``."""

from __future__ import annotations

import asyncio
import sys

from agent_memory_log.integrations.claude_agent import MemoryLogSessionStore
from agent_memory_log.integrations.openai_agents import MemoryLogSession
from tests.programs import acknowledge

CLAUDE_KEY = {"project_key": "-home-kim", "session_id": "s1"}


def add_and_pop_until_killed(url: str) -> None:
    """Add two items and pop one, again and again. Print each item that came back."""

    async def main() -> None:
        session = MemoryLogSession("chat", url)
        number = 0
        while True:
            await session.add_items([{"role": "user", "content": f"{number} {part}"} for part in ("kept", "popped")])
            popped = await session.pop_item()
            assert popped == {"role": "user", "content": f"{number} popped"}, popped
            acknowledge(str(number))
            number += 1

    asyncio.run(main())


def append_entries_until_killed(url: str) -> None:
    """Append two entries at a time to a Claude session, with titles that count. Print the number of each append."""

    async def main() -> None:
        store = MemoryLogSessionStore(url)
        number = 0
        while True:
            message = {"role": "user", "content": f"prompt {number}"}
            await store.append(
                CLAUDE_KEY,  # type: ignore[arg-type]  # a plain map
                [
                    {"type": "user", "uuid": f"u{number}", "message": message},  # type: ignore[typeddict-unknown-key]  # an entry may have any field
                    {"type": "custom-title", "customTitle": f"title {number}"},  # type: ignore[typeddict-unknown-key]  # as above
                ],
            )
            acknowledge(str(number))
            number += 1

    asyncio.run(main())


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
