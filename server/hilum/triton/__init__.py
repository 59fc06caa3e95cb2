"""The embedded tritonserver: find it in the nvidia-pytriton wheel, prepare it, start it on loopback, watch it, stop it."""
