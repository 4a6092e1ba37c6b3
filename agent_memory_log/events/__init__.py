"""The stored data: JSON values, field types, payloads, the registry of payloads, and the event."""
