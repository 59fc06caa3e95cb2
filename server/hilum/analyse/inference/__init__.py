"""Batches of images, and the Tritons that they are sent to."""
