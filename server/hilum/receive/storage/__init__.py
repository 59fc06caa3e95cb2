"""The Storage SCP (PS3.4 annex B): from the first bytes of an object to a durable file."""
