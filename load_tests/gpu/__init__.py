"""`make gpu-proof`: the same numbers on a GPU as on the CPU, and how fast."""
