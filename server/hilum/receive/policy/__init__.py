"""Decisions about senders, and the record of their associations."""
