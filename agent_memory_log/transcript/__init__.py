"""Provider transcripts: a provider's messages to events (``parse``), and a run back to messages (``build``).

    events = parse(messages, "openai-chat", source="run-42")
    build(snapshot, "openai-chat") == messages

``import_transcript`` takes messages into a run of a store, ``read_chat_lines`` reads files of them.
"""

from agent_memory_log.transcript.files import ChatLine, import_transcript, read_chat_lines
from agent_memory_log.transcript.providers import build, parse, provider_names

__all__ = ["ChatLine", "build", "import_transcript", "parse", "provider_names", "read_chat_lines"]
