"""A chat with an agent of Pydantic AI, whose conversation and memories are in one file.

    python examples/pydantic_ai_chat.py runs.db "I live in Berlin." "Where do I live?"

Each argument is a message. The model is scripted, so the program needs no key: it shows the background that it got.
Replace ``FunctionModel(answer)`` by the name of a model, such as ``"openai:gpt-5.5"``.
"""

# ruff: noqa: INP001, T201  # a program for a terminal, in a folder of programs

from __future__ import annotations

import asyncio
import sys

from pydantic_ai import Agent
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import ModelMessage, ModelResponse, SystemPromptPart, TextPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from agent_memory_log.integrations.pydantic_ai import MemoryLogConversationStore, memory_context
from agent_memory_log.memory import Principal, SyncMemoryClient
from agent_memory_log.memory.extraction import RuleExtractor

CHAT = "chat-1"


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Return the last line of the background, or a greeting."""
    del info
    # Pydantic AI shows most models a later system prompt as a part of the user's message.
    texts = [str(part.content) for part in messages[-1].parts if isinstance(part, (SystemPromptPart, UserPromptPart))]
    memories = [line for line in texts[-1].splitlines() if line.startswith("- ")]
    text = f"I remember: {memories[0]}" if memories else "Hello."
    return ModelResponse(parts=[TextPart(text)])


async def main(path: str, texts: list[str]) -> None:
    """Answer each message, store it, and learn from it."""
    with MemoryLogConversationStore(f"sqlite:///{path}") as store:
        memory = SyncMemoryClient(store.store, extractor=RuleExtractor()).of(Principal("acme", {"user": "42"}))
        agent = Agent(FunctionModel(answer), capabilities=[ProcessHistory(memory_context(memory))])
        conversation = await store.load(CHAT) or Conversation(conversation_id=CHAT)
        for text in texts:
            result = await agent.run(text, conversation=conversation)
            await store.save(result)
            memory.derive(store.agent, CHAT)
            conversation = result.conversation
            print("user: ", text)
            print("agent:", result.output)
        print("memories:", [record.text for record in memory.list()])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
