"""Tests of the backend mongo."""
