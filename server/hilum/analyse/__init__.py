"""Images to numbers: decode, prepare, batch, ask Triton. `gateway` is the one way to Triton."""
