"""Composition root: how each process is put together, one module a role, so that a listener never loads torch.

The supervisor starts `python -m hilum.wiring ROLE`; what the child needs comes as one JSON object on standard input.
"""
