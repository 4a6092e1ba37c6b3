"""Reads memory: by key, as lists and history, by search in a warm index, and as context for a model."""
