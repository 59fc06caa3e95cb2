"""`hilum evaluate`."""
