"""From a manifest to a Triton model tree, for each profile."""
