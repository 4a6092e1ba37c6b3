"""Reading what is remembered: records by key, lists, history, search, and the context for a model."""
