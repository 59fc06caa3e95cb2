"""Labels and scores, joined into cases."""
