"""Processes that decode files to tensors in shared memory."""
