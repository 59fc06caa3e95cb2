"""Deletion of pixels, files and old rows."""
