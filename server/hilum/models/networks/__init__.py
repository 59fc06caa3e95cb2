"""Networks in torch, by the names of published checkpoints."""
