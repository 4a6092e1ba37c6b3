"""Lets eight processes append to two hundred runs on MongoDB while others follow them."""

from __future__ import annotations

from tests.mongo.test_processes import append_while_others_follow, database, server, uri

__all__ = ["database", "server", "uri"]


def test_processes_append_while_others_follow(uri: str) -> None:
    append_while_others_follow(uri, [("one", 1, 40), ("many", 200, 100)])
