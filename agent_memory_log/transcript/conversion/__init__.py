"""Messages to events and back: what the providers' packages share."""
