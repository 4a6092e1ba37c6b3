"""An agent of Google's ADK whose sessions, shared state and memories are in one file.

    python examples/google_adk_sessions.py runs.db

The model is scripted, so the program needs no key. Replace ``ScriptedModel()`` by the name of a model, such as
``"gemini-flash-latest"``, to talk to Gemini.
"""

# ruff: noqa: INP001, T201, S101  # a program for a terminal, in a folder of programs

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from agent_memory_log import open_sync_store
from agent_memory_log.integrations.google_adk import MemoryLogMemoryService, MemoryLogSessionService
from agent_memory_log.memory.extraction import RuleExtractor

USER = "42"


class ScriptedModel(BaseLlm):
    """Takes a note of what the user says, and then answers."""

    model: str = "scripted"

    async def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,  # noqa: ARG002  # the method of ADK
    ) -> AsyncGenerator[LlmResponse, None]:
        """Yield a call of the tool, or an answer if the tool has answered."""
        parts = llm_request.contents[-1].parts or []
        if parts[-1].function_response:
            part = types.Part(text="Noted.")
        else:
            part = types.Part(function_call=types.FunctionCall(name="take_note", args={"note": parts[0].text}))
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def take_note(note: str, tool_context: ToolContext) -> dict[str, str]:
    """Keep a note for all sessions of the user."""
    tool_context.state["user:note"] = note
    return {"status": "kept"}


async def main(path: str) -> None:
    """Say something in one session. Then look at the log, at a new session and at memory."""
    with open_sync_store(f"sqlite:///{path}") as store:
        sessions = MemoryLogSessionService(store)
        memory = MemoryLogMemoryService(store, extractor=RuleExtractor())
        agent = LlmAgent(name="clerk", model=ScriptedModel(), tools=[take_note])
        runner = Runner(app_name="shop", agent=agent, session_service=sessions, memory_service=memory)
        session = await sessions.create_session(app_name="shop", user_id=USER)
        message = types.Content(role="user", parts=[types.Part(text="I live in Berlin.")])
        async for event in runner.run_async(user_id=USER, session_id=session.id, new_message=message):
            print("event:", event.author, event.id)

        for stored_event in store.load_run(f"google-adk/shop/{USER}", session.id).log:
            print("log:", stored_event.seq, stored_event.type)

        later = await sessions.create_session(app_name="shop", user_id=USER)
        print("state of a new session:", later.state)

        stored = await sessions.get_session(app_name="shop", user_id=USER, session_id=session.id)
        assert stored is not None
        await memory.add_session_to_memory(stored)
        results = await memory.search_memory(app_name="shop", user_id=USER, query="Where does the user live? Berlin?")
        for entry in results.memories:
            print("memory:", [part.text for part in entry.content.parts or []])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "runs.db"))
