"""A chat with the Claude Agent SDK. One file holds the transcripts, and the memory that they share.

    pip install 'agent-memory-log[claude-agent]'
    python examples/claude_agent_chat.py "Call me Kim."                   # prints the id of the session
    python examples/claude_agent_chat.py --resume ID "Where is my order?"

The session is resumed from the store, so the second command works on another machine that reaches the store. A new
session finds the name with its tool ``search_memory``. ANTHROPIC_BASE_URL may name another server.
"""

# ruff: noqa: INP001, T201  # a program for a terminal, in a folder of programs

from __future__ import annotations

import argparse
import asyncio

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ResultMessage,
    TextBlock,
    create_sdk_mcp_server,
    project_key_for_directory,
    query,
)

from agent_memory_log import open_sync_store
from agent_memory_log.integrations.claude_agent import MemoryLogSessionStore, memory_tool
from agent_memory_log.integrations.names import joined_id
from agent_memory_log.memory import Principal, SyncMemoryClient
from agent_memory_log.memory.extraction import RuleExtractor


async def chat(url: str, text: str, resume: str | None = None) -> tuple[str, str]:
    """Send a text of the user to Claude, and return its answer and the id of the session."""
    answer, session_id = "", ""
    with open_sync_store(url) as store:
        client = SyncMemoryClient(store, extractor=RuleExtractor())
        memory = client.of(Principal(tenant="example", scopes={"user": "kim"}))
        options = ClaudeAgentOptions(
            session_store=MemoryLogSessionStore(store),
            resume=resume,
            mcp_servers={"memory": create_sdk_mcp_server("memory", tools=[memory_tool(memory)])},
            allowed_tools=["mcp__memory__search_memory"],
        )
        async for message in query(prompt=text, options=options):
            if isinstance(message, AssistantMessage):
                answer = "".join(block.text for block in message.content if isinstance(block, TextBlock))
            elif isinstance(message, ResultMessage):
                session_id = message.session_id
        memory.derive(joined_id("claude-agent", project_key_for_directory()), session_id)  # the turns that are over
    return answer, session_id


def main() -> None:
    """Read the arguments and print the answer."""
    parser = argparse.ArgumentParser(description="A chat whose transcripts and memory are in one file.")
    parser.add_argument("text", help="the message of the user")
    parser.add_argument("--resume", help="the id of an earlier session")
    parser.add_argument("--store", default="sqlite:///chat.db", help="the URL of the store")
    arguments = parser.parse_args()
    answer, session_id = asyncio.run(chat(arguments.store, arguments.text, arguments.resume))
    print(f"{answer}\n[session {session_id}]")


if __name__ == "__main__":
    main()
