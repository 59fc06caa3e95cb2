"""Rows of the audit, and the named access tokens."""
