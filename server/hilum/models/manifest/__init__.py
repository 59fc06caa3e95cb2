"""Manifests: their tables, labels, rules and coded concepts."""
