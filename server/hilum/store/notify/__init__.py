"""Notifications that a stage has work."""
