"""A task performer of a worklist manager (IHE AIW-I), by UPS-RS (PS3.18 11)."""
