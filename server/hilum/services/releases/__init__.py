"""Releases while a server runs: loaded, verified, checked, replaced."""
