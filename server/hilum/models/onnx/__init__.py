"""ONNX graphs: their contract, checks and rewriting."""
