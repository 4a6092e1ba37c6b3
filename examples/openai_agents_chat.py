"""A chat with the OpenAI Agents SDK. One file holds the conversations, and the memory that they share.

    pip install 'agent-memory-log[openai-agents]'
    python examples/openai_agents_chat.py --session monday "Call me Kim."
    python examples/openai_agents_chat.py --session monday "Where is my order?"
    python examples/openai_agents_chat.py --session tuesday "What is my name?"

It needs OPENAI_API_KEY. OPENAI_BASE_URL may name another server. The agent on Tuesday finds the name with its tool
``search_memory``.
"""

# ruff: noqa: INP001, T201  # a program for a terminal, in a folder of programs

from __future__ import annotations

import argparse
import asyncio

from agents import Agent, Runner

from agent_memory_log import open_sync_store
from agent_memory_log.integrations.openai_agents import MemoryLogSession, memory_tool
from agent_memory_log.memory import Principal, SyncMemoryClient
from agent_memory_log.memory.extraction import RuleExtractor


async def chat(url: str, session_id: str, text: str) -> str:
    """Send a text of the user to the agent, and return its answer."""
    with open_sync_store(url) as store:
        client = SyncMemoryClient(store, extractor=RuleExtractor())
        memory = client.of(Principal(tenant="example", scopes={"user": "kim"}))
        session = MemoryLogSession(session_id, store)
        agent = Agent(
            name="assistant",
            instructions="Answer briefly. Search your memory for what you need to know about the user.",
            tools=[memory_tool(memory)],
        )
        result = await Runner.run(agent, text, session=session)
        memory.derive(session.agent, session.run)  # learns from the turns that are over
        return str(result.final_output)


def main() -> None:
    """Read the arguments and print the answer."""
    parser = argparse.ArgumentParser(description="A chat whose history and memory are in one file.")
    parser.add_argument("text", help="the message of the user")
    parser.add_argument("--session", default="chat", help="the id of the conversation")
    parser.add_argument("--store", default="sqlite:///chat.db", help="the URL of the store")
    arguments = parser.parse_args()
    print(asyncio.run(chat(arguments.store, arguments.session, arguments.text)))


if __name__ == "__main__":
    main()
