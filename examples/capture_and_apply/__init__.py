"""One session captures what a user says, a later one plans, retrieves, answers, and its answer is audited.

``python examples/capture_and_apply`` plays three sessions, each in a process of its own; the model is scripted.
Needs ``agent-memory-log[memory]``.
"""
