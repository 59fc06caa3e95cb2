"""The processes: one module for each role puts its process together.

So a listener never loads torch. The supervisor starts `python -m hilum.processes ROLE` and
passes one JSON object on standard input.
"""
