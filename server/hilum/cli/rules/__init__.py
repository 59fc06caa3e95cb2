"""`hilum rules`."""
