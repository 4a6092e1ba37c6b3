"""What makes a conversation valid, and mends one that is not: what the providers' packages share."""
