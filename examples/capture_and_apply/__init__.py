"""One session captures a user's wishes. A later session retrieves them for an answer, and audits the answer.

``python examples/capture_and_apply`` plays three sessions, each in its own process. The model is scripted.
Needs ``agent-memory-log[memory]``.
"""
