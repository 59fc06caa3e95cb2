"""`hilum models check` and `show`."""
