"""Authentication: tokens, sessions, login links, and limits on wrong tokens."""
