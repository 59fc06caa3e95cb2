"""The input guard: images that are not analysed, and doubts about the others."""
