"""Finds and masks secrets: keys, tokens, passwords, codes, card numbers and account numbers.

    redact_text("my password is hunter2")  # "my password is [secret: password]"

    async with RunRecorder(store, "support-agent", "run-42", before_append=redacted_event) as recorder:
        await recorder.user("my password is hunter2")  # is stored masked

``docs/secrets.md`` lists the kinds of secrets and the measured accuracy.
"""

from agent_memory_log.secrets.events import redacted_event
from agent_memory_log.secrets.finding import Finding, find_secrets, redact_text

__all__ = ["Finding", "find_secrets", "redact_text", "redacted_event"]
