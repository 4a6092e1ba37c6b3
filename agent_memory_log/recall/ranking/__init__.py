"""The ranking of the documents of an index for a question."""
