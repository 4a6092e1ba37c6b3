"""Holds the profiles of vendors that speak the shape of OpenAI Chat Completions."""
