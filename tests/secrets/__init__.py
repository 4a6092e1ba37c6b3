"""Tests of the secret finder and of redaction."""
