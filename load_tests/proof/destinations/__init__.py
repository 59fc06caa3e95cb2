"""What each kind of destination does under trouble."""
