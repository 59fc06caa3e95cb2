"""The resize of one picture, along both axes: compiled, and in torch."""
