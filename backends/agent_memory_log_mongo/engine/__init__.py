"""Runs operations: time limits, retries, threads and tasks, and the state that the operations of a handle share."""
