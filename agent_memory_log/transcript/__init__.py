"""Provider transcripts: a provider's messages to events (``parse``), and a run back to messages (``build``).

    events = parse(messages, "openai-chat", source="run-42")
    build(snapshot, "openai-chat") == messages

``import_transcript`` takes messages into a run of a store, ``read_chat_lines`` reads files of them.
"""

from agent_memory_log.transcript.files import ChatLine, import_transcript, import_transcript_sync, read_chat_lines
from agent_memory_log.transcript.model import Change, Finding, Loss, Message, Path
from agent_memory_log.transcript.names import decode_name, encode_name
from agent_memory_log.transcript.providers import build, parse, provider_names, repair, request, validate, window
from agent_memory_log.transcript.requests import model_request
from agent_memory_log.transcript.transcripts import Repair, Transcript, Window

__all__ = [
    "Change",
    "ChatLine",
    "Finding",
    "Loss",
    "Message",
    "Path",
    "Repair",
    "Transcript",
    "Window",
    "build",
    "decode_name",
    "encode_name",
    "import_transcript",
    "import_transcript_sync",
    "model_request",
    "parse",
    "provider_names",
    "read_chat_lines",
    "repair",
    "request",
    "validate",
    "window",
]
