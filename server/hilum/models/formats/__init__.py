"""File formats of weights, manifests and Triton models."""
