"""Composition root: each process is put together in one module a role.

So a listener never loads torch. The supervisor starts `python -m hilum.wiring ROLE` and passes one
JSON object on standard input.
"""
