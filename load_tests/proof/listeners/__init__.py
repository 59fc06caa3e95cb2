"""Listener processes alone: kill -9, a full disk, a power cut."""
