"""The results of operations on memory."""
