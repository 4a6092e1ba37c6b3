"""What one provider's package offers, and the arguments of its call beside the transcript."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.transcript.conversion.building import Builder
from agent_memory_log.transcript.conversion.parsing import Parser
from agent_memory_log.transcript.conversion.rendering import text_message
from agent_memory_log.transcript.findings import Finding, WireMessage
from agent_memory_log.transcript.log_facts import Facts
from agent_memory_log.transcript.requests import RecordedRequest, ToolDefinition
from agent_memory_log.transcript.transcripts import Transcript
from agent_memory_log.transcript.validity.repairing import Draft
from agent_memory_log.transcript.windows import Side


def as_given(messages: Sequence[object], request: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The other arguments as they are: with none of them a valid transcript is refused."""
    del messages
    return dict(request)


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """A provider whose transcripts are read, built, checked, repaired and cut.

    - ``name``: the name that ``parse`` and ``build`` take.
    - ``messages_key``, ``system_key``, ``tools_key``, ``model_key``: the arguments of the provider's call.
    - ``parser``: makes a parser for one transcript of a source. ``builder``: makes a builder that fills a list.
    - ``validate``: the findings, without seqs.
    - ``repair``: changes ``draft.entries`` so that ``validate`` finds nothing.
    - ``system_from_text``: the system prompt that a text makes; None if it is the first of the messages.
    - ``tools_from_definitions``: the argument that takes the tools.
    - ``sendable``: the other arguments, without what a transcript that is otherwise valid cannot be sent with.
    - ``side_of``, ``joins_model``: where a transcript may be cut; see ``find_seams``.
    - ``without_reasoning``: a message without what is bound to all that stands before it; None if nothing is left.
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
    sendable: Callable[[Sequence[object], Mapping[str, JsonValue]], dict[str, JsonValue]] = as_given
    side_of: Callable[[WireMessage], Side]
    joins_model: bool = False
    without_reasoning: Callable[[WireMessage], WireMessage | None]

    def arguments(self, recorded: RecordedRequest, transcript: Transcript) -> dict[str, JsonValue]:
        """The arguments beside the transcript; a system prompt that belongs into the transcript is put there."""
        arguments: dict[str, JsonValue] = {}
        if recorded.own:
            arguments.update(recorded.parameters or {})
            if recorded.model is not None:
                arguments[self.model_key] = recorded.model
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
