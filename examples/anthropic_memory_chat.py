"""A chat in which Claude keeps notes with the memory tool. One file holds the notes of all users, with their history.

    pip install 'agent-memory-log[anthropic]'
    python examples/anthropic_memory_chat.py --user kim "I live in Berlin. Remember that."
    python examples/anthropic_memory_chat.py --user kim "Where do I live?"
    python examples/anthropic_memory_chat.py --user kim --forget /memories

It needs ANTHROPIC_API_KEY. ANTHROPIC_BASE_URL may name another server.
"""

# ruff: noqa: INP001, T201  # a program for a terminal, in a folder of programs

from __future__ import annotations

import argparse

from anthropic import Anthropic

from agent_memory_log.integrations.anthropic_memory import MemoryLogMemoryTool

MODEL = "claude-sonnet-5-5"


def chat(tool: MemoryLogMemoryTool, text: str) -> str:
    """Send a text of the user to Claude, and return the answer after all calls of the tool."""
    runner = Anthropic().beta.messages.tool_runner(
        model=MODEL,
        max_tokens=2_000,
        tools=[tool],
        messages=[{"role": "user", "content": text}],
    )
    message = runner.until_done()
    return "".join(block.text for block in message.content if block.type == "text")


def main() -> None:
    """Read the arguments, and print the answer and the files that Claude keeps."""
    parser = argparse.ArgumentParser(description="A chat in which Claude keeps notes.")
    parser.add_argument("text", nargs="?", help="the message of the user")
    parser.add_argument("--user", default="kim", help="the id of the user")
    parser.add_argument("--forget", metavar="PATH", help="erase the files at this path, with their history")
    parser.add_argument("--store", default="sqlite:///chat.db", help="the URL of the store")
    arguments = parser.parse_args()
    with MemoryLogMemoryTool(arguments.store, user=arguments.user) as tool:
        if arguments.text:
            print(chat(tool, arguments.text))
        if arguments.forget:
            print(f"{tool.forget(arguments.forget)} events erased")
        print(tool.call({"command": "view", "path": "/memories"}))


if __name__ == "__main__":
    main()
