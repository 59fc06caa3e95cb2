"""Broken and odd associations by the hundred thousand at a real listener."""
