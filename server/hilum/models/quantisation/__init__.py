"""Releases in int8, made from another release."""
