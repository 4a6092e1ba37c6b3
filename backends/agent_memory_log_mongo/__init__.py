"""The MongoDB backend."""
