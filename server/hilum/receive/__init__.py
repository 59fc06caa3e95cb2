"""Receive: the C-ECHO and C-STORE SCP.

An object is durable before it is acknowledged, and in the ledger a moment later.
"""
