"""Requests by HTTP to another system: credentials, TLS, limits, and errors with advice."""
