"""Tests of the callers of the server: tokens, issuers, the audit, and attacks over real sockets."""
