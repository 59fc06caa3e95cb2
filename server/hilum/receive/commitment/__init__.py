"""The Storage Commitment SCP (PS3.4 annex J)."""
