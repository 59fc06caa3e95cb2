"""Pages on campaigns: the list, and one campaign with its days."""
