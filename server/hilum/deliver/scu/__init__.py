"""The Storage SCU: one association to a receiver (PS3.7, PS3.8)."""
