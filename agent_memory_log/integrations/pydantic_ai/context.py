"""A history processor that gives an agent context from memory, and a toolset with which the model asks for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable

from pydantic_ai import FunctionToolset
from pydantic_ai.messages import ModelMessage, ModelRequest, SystemPromptPart, UserPromptPart

from agent_memory_log.events.context_payloads import injected_context
from agent_memory_log.integrations.memory_search import memory_search
from agent_memory_log.integrations.pydantic_ai.encoding import OWN
from agent_memory_log.integrations.threads import in_thread
from agent_memory_log.memory.sync import SyncMemoryCalls


def memory_context(
    memory: SyncMemoryCalls, *, max_tokens: int = 1000
) -> Callable[[list[ModelMessage]], Awaitable[list[ModelMessage]]]:
    """Return a processor that adds the memories that fit the user's prompt, as a system prompt after it.

        agent = Agent("openai:gpt-5.5", capabilities=[ProcessHistory(memory_context(memory))])

    The memory's principal decides which memories it reads. ``MemoryLogConversationStore`` stores the addition as an
    ``InjectedContext``: if a memory is erased, so is each addition that names it.

    Args:
        memory: The memory of the user.
        max_tokens: The maximum number of tokens to add to a prompt.
    """

    async def add_context(messages: list[ModelMessage]) -> list[ModelMessage]:
        request = messages[-1] if messages else None
        if not isinstance(request, ModelRequest) or any(_is_context(part) for part in request.parts):
            return messages
        query = "\n".join(text for part in request.parts if isinstance(part, UserPromptPart) for text in _texts(part))
        context = await in_thread(lambda: memory.context(query, max_tokens=max_tokens)) if query.strip() else None
        if context is None or not context.text:
            return messages
        fields = injected_context(context, OWN).to_map()
        prompt = SystemPromptPart(context.text, metadata={OWN: {key: fields[key] for key in fields.keys() - {"text"}}})
        return [*messages[:-1], dataclasses.replace(request, parts=[*request.parts, prompt])]

    return add_context


def memory_toolset(memory: SyncMemoryCalls) -> FunctionToolset[object]:
    """Return a toolset with the tool ``search_memory``, with which an agent looks into a memory.

        agent = Agent("openai:gpt-5.5", toolsets=[memory_toolset(memory)])

    The memory's principal decides which memories it reads. Arguments of the model never do.
    """
    return FunctionToolset([memory_search(memory)])


def _is_context(part: object) -> bool:
    return isinstance(part, SystemPromptPart) and OWN in (part.metadata or {})


def _texts(part: UserPromptPart) -> list[str]:
    content = [part.content] if isinstance(part.content, str) else part.content
    return [item for item in content if isinstance(item, str)]
