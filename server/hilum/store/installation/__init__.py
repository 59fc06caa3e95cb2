"""Values that belong to the whole installation: secret seeds, its epoch, its known time."""
