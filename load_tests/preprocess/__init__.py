"""`make bench-preprocess`: from a file to a tensor on one core."""
