"""Memory and runs for models, as tools, resources and prompts of the Model Context Protocol (MCP).

The tools are operations of the table: ``tools`` has a line for each. ``answers`` limits an answer and marks stored text
as data. ``server`` answers requests, over stdio or, with ``http``, over streamable HTTP.
"""
