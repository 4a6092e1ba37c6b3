"""Vectors that a caller makes: it embeds texts and queries, and sends the vectors to where memory is searched."""
