"""Converts between provider messages and events: ``parse`` makes events of messages, ``build`` makes messages of a run.

    events = parse(messages, "openai-chat", source="run-42")
    build(snapshot, "openai-chat") == messages

``import_transcript`` appends a provider's messages to a run. ``read_chat_lines`` reads files of such messages.
"""

from agent_memory_log.transcript.conversion.crossing import parts_of
from agent_memory_log.transcript.files import ChatLine, import_transcript, import_transcript_sync, read_chat_lines
from agent_memory_log.transcript.findings import Change, Finding, Loss, Path, WireMessage
from agent_memory_log.transcript.names import decode_name, encode_name
from agent_memory_log.transcript.providers import (
    build,
    parse,
    provider_names,
    repair,
    request,
    validate,
    vendor_names,
    window,
)
from agent_memory_log.transcript.requests import model_request
from agent_memory_log.transcript.transcripts import Repair, Transcript, Window

__all__ = [
    "Change",
    "ChatLine",
    "Finding",
    "Loss",
    "Path",
    "Repair",
    "Transcript",
    "Window",
    "WireMessage",
    "build",
    "decode_name",
    "encode_name",
    "import_transcript",
    "import_transcript_sync",
    "model_request",
    "parse",
    "parts_of",
    "provider_names",
    "read_chat_lines",
    "repair",
    "request",
    "validate",
    "vendor_names",
    "window",
]
