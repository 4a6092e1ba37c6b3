"""The callers of the server, by tokens of the store and of an issuer, and the audit of their changes."""
