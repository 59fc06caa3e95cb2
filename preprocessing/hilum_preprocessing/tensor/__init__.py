"""From stored values to the wire tensor."""
