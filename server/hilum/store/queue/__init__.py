"""The tables that are stages' queues: claims, completions, and people's changes to them."""
