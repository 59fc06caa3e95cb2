"""What a release demands of pixels: InputSpec, its operations and its recipes."""
