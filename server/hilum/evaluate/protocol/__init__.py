"""Protocols of public data sets, as TOML files, and the leaderboard."""
