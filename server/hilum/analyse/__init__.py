"""Inference: decode, prepare, batch, send to Triton. Only `gateway` calls Triton."""
