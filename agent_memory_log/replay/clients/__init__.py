"""Clients of OpenAI's and Anthropic's SDKs that a replayer answers: ``Replayer.openai_client`` and its siblings."""
