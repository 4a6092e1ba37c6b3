"""Tests of MCP, with the client of the official SDK."""
