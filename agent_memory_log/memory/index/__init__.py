"""The warm index of a subject's records and linked messages, and the vectors stored for it."""
