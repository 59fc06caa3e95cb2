"""Identifiers and other values of an encoded header."""
