"""Defines ``Provider``, the interface that each provider's package implements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.transcript.conversion.building import Builder
from agent_memory_log.transcript.conversion.parsing import Parser
from agent_memory_log.transcript.conversion.rendering import text_message
from agent_memory_log.transcript.findings import Finding, WireMessage
from agent_memory_log.transcript.json_types import map_in
from agent_memory_log.transcript.log_facts import Facts
from agent_memory_log.transcript.names import WireRules
from agent_memory_log.transcript.requests import RecordedRequest, ToolDefinition
from agent_memory_log.transcript.transcripts import Transcript
from agent_memory_log.transcript.validity.repairing import Draft
from agent_memory_log.transcript.windows import Side


def same_arguments(messages: Sequence[object], request: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return a copy of ``request``, for providers that accept a valid transcript with any other arguments."""
    del messages
    return dict(request)


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """The functions that read, build, validate, repair and cut one provider's transcripts.

    Attributes:
        name: The name that ``parse`` and ``build`` take.
        messages_key: The argument of the provider's call that takes the messages.
        system_key: The argument that takes the system prompt.
        tools_key: The argument that takes the tools.
        model_key: The argument that takes the model.
        parser: Returns a parser for one transcript of a source.
        builder: Returns a builder that fills a list, with an optional size limit for results.
        validate: Returns the findings without seqs.
        repair: Changes ``draft.entries`` so that ``validate`` has no findings.
        system_from_text: Converts a text to the provider's system prompt. None if the system prompt is the first
            message.
        tools_from_definitions: Converts tool definitions to the provider's argument.
        sendable: Returns the other arguments of the call, without those that conflict with the transcript.
        side_of: Returns the side of a message, which decides where a transcript may be cut; see ``find_seams``.
        joins_model: Whether consecutive messages of the model belong to one round; see ``find_seams``.
        vendor_rules: The limits for ids at vendors. For a vendor's own package, they are its limits. OpenAI's packages
            use them if the request names a model that OpenAI does not have. None if the provider has no vendors.
        without_reasoning: Returns a message without the reasoning that is bound to earlier messages; None if nothing is
            left.
    """

    name: str
    messages_key: str = "messages"
    system_key: str = "system"
    tools_key: str = "tools"
    model_key: str = "model"
    parser: Callable[[str], Parser]
    builder: Callable[[list[WireMessage], int | None], Builder]
    validate: Callable[[Sequence[object], Facts], list[Finding]]
    repair: Callable[[Draft, Facts], None]
    system_from_text: Callable[[str], JsonValue] | None
    tools_from_definitions: Callable[[Sequence[ToolDefinition]], JsonValue]
    sendable: Callable[[Sequence[object], Mapping[str, JsonValue]], dict[str, JsonValue]] = same_arguments
    side_of: Callable[[WireMessage], Side]
    joins_model: bool = False
    vendor_rules: WireRules | None = None
    without_reasoning: Callable[[WireMessage], WireMessage | None]

    def arguments(self, recorded: RecordedRequest, transcript: Transcript) -> dict[str, JsonValue]:
        """Return the other arguments of the call. A system prompt that belongs in the transcript is inserted there."""
        arguments: dict[str, JsonValue] = {}
        if recorded.own:
            arguments.update(recorded.parameters or {})
            if recorded.model is not None:
                arguments[self.model_key] = recorded.model
        if recorded.container:
            skills = map_in(arguments.get("container"))
            arguments["container"] = {**skills, "id": recorded.container} if skills else recorded.container
        if self.system_from_text is None:
            begins_with_system = bool(transcript) and transcript[0].get("role") in ("system", "developer")
            if recorded.system_text and not begins_with_system:
                transcript.prepend(text_message("system", recorded.system_text))
        elif recorded.system is not None:
            arguments[self.system_key] = recorded.system
        elif recorded.system_text:
            arguments[self.system_key] = self.system_from_text(recorded.system_text)
        if recorded.tools is not None:
            arguments[self.tools_key] = recorded.tools
        elif recorded.definitions:
            arguments[self.tools_key] = self.tools_from_definitions(recorded.definitions)
        return arguments
