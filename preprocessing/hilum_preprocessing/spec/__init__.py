"""The demands of a release on pixels: InputSpec, its operations and its recipes."""
