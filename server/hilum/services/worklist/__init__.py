"""Priorities from a modality worklist."""
