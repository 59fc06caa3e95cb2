"""From stored values to the levels that a model was trained on."""
