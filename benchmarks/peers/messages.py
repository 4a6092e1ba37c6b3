"""Converts events to the messages of other libraries, which have the same content."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

from agent_memory_log import AssistantMessage, Event, Thinking, ToolCall, ToolResult, UserMessage


def openai_item(event: Event) -> dict[str, Any]:
    """Return an item of OpenAI's Responses API."""
    match event.data:
        case UserMessage(message=text):
            return {"role": "user", "content": text}
        case AssistantMessage(message=text):
            return {"role": "assistant", "content": text}
        case Thinking(text=text, signature=signature):
            summary = [{"type": "summary_text", "text": text}]
            return {"type": "reasoning", "id": event.event_id, "summary": summary, "encrypted_content": signature}
        case ToolCall(tool_call_id=call, tool_name=name, payload_json=arguments):
            return {"type": "function_call", "call_id": call, "name": name, "arguments": arguments}
        case ToolResult(tool_call_id=call, result_json=output):
            return {"type": "function_call_output", "call_id": call, "output": output}
        case _:
            raise TypeError(event.type)


def langchain_message(event: Event) -> Any:  # noqa: ANN401  # LangChain may not be installed
    """Return a message of LangChain."""
    kinds = import_module("langchain_core.messages")
    match event.data:
        case UserMessage(message=text):
            return kinds.HumanMessage(content=text, id=event.event_id)
        case AssistantMessage(message=text):
            return kinds.AIMessage(content=text, id=event.event_id)
        case Thinking(text=text, signature=signature):
            block = {"type": "thinking", "thinking": text, "signature": signature}
            return kinds.AIMessage(content=[block], id=event.event_id)
        case ToolCall(tool_call_id=call, tool_name=name, payload_json=arguments):
            calls = [{"id": call, "name": name, "args": json.loads(arguments), "type": "tool_call"}]
            return kinds.AIMessage(content="", tool_calls=calls, id=event.event_id)
        case ToolResult(tool_call_id=call, tool_name=name, result_json=output):
            return kinds.ToolMessage(content=output, tool_call_id=call, name=name, id=event.event_id)
        case _:
            raise TypeError(event.type)


def adk_event(event: Event) -> Any:  # noqa: ANN401  # ADK may not be installed
    """Return an event of Google's Agent Development Kit."""
    types = import_module("google.genai.types")
    match event.data:
        case UserMessage(message=text) | AssistantMessage(message=text):
            part = types.Part(text=text)
        case Thinking(text=text, signature=signature):
            part = types.Part(text=text, thought=True, thought_signature=signature.encode())
        case ToolCall(tool_call_id=call, tool_name=name, payload_json=arguments):
            part = types.Part(function_call=types.FunctionCall(id=call, name=name, args=json.loads(arguments)))
        case ToolResult(tool_call_id=call, tool_name=name, result_json=output):
            response = types.FunctionResponse(id=call, name=name, response=json.loads(output))
            part = types.Part(function_response=response)
        case _:
            raise TypeError(event.type)
    role = "user" if isinstance(event.data, (UserMessage, ToolResult)) else "model"
    author = "user" if isinstance(event.data, UserMessage) else "agent"
    content = types.Content(role=role, parts=[part])
    return import_module("google.adk.events").Event(author=author, invocation_id="turn", content=content)
