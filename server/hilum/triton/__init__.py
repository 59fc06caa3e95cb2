"""The embedded tritonserver: find it in the nvidia-pytriton wheel, prepare it, start it in a sandbox, watch it, stop it."""
