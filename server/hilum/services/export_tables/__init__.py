"""The tables of an export: their columns, their rows, and their files."""
