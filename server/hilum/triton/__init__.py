"""The embedded tritonserver: find it in its wheel, prepare it, start it in a sandbox, watch it."""
