"""Replacement of a release by another one, and the releases that read an image."""
