"""Converts events to Gemini contents."""

from __future__ import annotations

from typing import cast

from agent_memory_log.events.payloads import SystemMessage, Thinking, ToolCall, ToolResult
from agent_memory_log.transcript.conversion.blocks import BlockBuilder
from agent_memory_log.transcript.conversion.building import NO_RESIDUAL, Residual
from agent_memory_log.transcript.conversion.rendering import TextPayload, arguments_map, failure_text
from agent_memory_log.transcript.differences import apply
from agent_memory_log.transcript.findings import WireMessage
from agent_memory_log.transcript.gemini import rendering


class GeminiBuilder(BlockBuilder):
    """Builds Gemini contents; see ``agent_memory_log.transcript.build``.

    The API pairs results without an id with calls by their order. A log has results in the order of arrival, so the
    builder sorts the results in a content by their calls.
    """

    provider = rendering.PROVIDER
    rules = rendering.RULES
    extra = rendering.EXTRA
    part_key = "parts"
    assistant_role = rendering.MODEL
    text_block = staticmethod(rendering.text_block)

    def __init__(self, messages: list[WireMessage], max_result_bytes: int | None) -> None:
        super().__init__(messages, max_result_bytes)
        self._names = rendering.Names()
        # For each call without an id, the index of its content and its number. The key is its id in the log.
        self._places: dict[str, tuple[int, int]] = {}
        # The results of such calls in the last content: for each name, the index of the part and the call's place.
        self._results: dict[str, list[tuple[int, tuple[int, int]]]] = {}
        self._results_of = -1

    def add_message(self, role: str, seq: int, data: TextPayload) -> None:
        """Add text parts; an empty text adds no part."""
        residual = NO_RESIDUAL if data.structured is None else self.residual_of(seq, data)
        text = data.message
        if role == "system":
            self.recorded.leading.append(cast("SystemMessage", data))
            return
        spans = residual.get("parts")
        blocks = None if spans is None else rendering.text_parts(role).join(text, spans)
        if blocks:
            self.add_blocks(blocks, role, residual, seq)
        elif blocks is None and text:
            self.add_block(rendering.text_block(text), role, residual, seq)

    def thinking(self, seq: int, data: Thinking, residual: Residual) -> None:
        """Add a thought, if Gemini made it."""
        if residual.get("thought") is not True:
            self.lose("reasoning", "thinking that Gemini did not make", seq, data.event_type)
            return
        self.add_block(apply(rendering.thought(data), residual), "assistant", residual, seq)

    def call(self, seq: int, data: ToolCall, wire_id: str, residual: Residual) -> None:
        """Add a call to the model's content."""
        arguments, is_exact = arguments_map(data.payload_json)
        if not is_exact:
            self.lose("arguments", f"the arguments of {data.tool_name!r} are not a JSON object", seq, data.event_type)
        body = apply(rendering.function_call(data, wire_id, arguments), residual)
        self._names.add(data, body.get("name"))
        part = rendering.whole_part({rendering.key_of(residual, rendering.CALL): body}, residual)
        self.add_block(part, "assistant", residual, seq)
        if not body.get("id"):
            self._places[data.tool_call_id] = len(self.messages), len(self._places)

    def result(self, seq: int, data: ToolResult, wire_id: str, omitted: str | None, residual: Residual) -> None:
        """Add a result to the user's content."""
        super().result(seq, data, wire_id, omitted, residual)
        place = None if wire_id else self._places.get(data.tool_call_id)
        if place is not None:
            self._sort_last(self._names.of(data), place)

    def _sort_last(self, name: str, place: tuple[int, int]) -> None:
        """Move the last result before the results of later calls in the same content with the same name."""
        last = len(self.messages) - 1
        if last != self._results_of:
            self._results, self._results_of = {}, last
        parts, seqs = self.messages[last][self.part_key], self.origins.parts[last]
        results = self._results.setdefault(name, [])
        index = len(parts) - 1
        results.append((index, place))
        for number in range(len(results) - 1, 0, -1):
            before, its_place = results[number - 1]
            if its_place[0] != place[0] or its_place < place:
                break
            for items in (parts, seqs):
                items[before], items[index] = items[index], items[before]
            results[number - 1 : number + 1] = [(before, place), (index, its_place)]
            index = before

    def result_block(self, data: ToolResult, wire_id: str, omitted: str | None, residual: Residual) -> WireMessage:
        """Return the part of a result."""
        body = apply(rendering.function_response(data, wire_id, self._names.of(data), residual), residual)
        if omitted is not None:
            failure = failure_text(data)
            body["response"] = {**({rendering.ERROR: failure} if failure else {}), rendering.OUTPUT: omitted}
            body.pop("parts", None)
        return rendering.whole_part({rendering.key_of(residual, rendering.RESULT): body}, residual)
