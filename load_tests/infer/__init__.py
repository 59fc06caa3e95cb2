"""`make bench-infer`: Triton beside the bare engine."""
