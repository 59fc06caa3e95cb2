"""Acknowledged files become rows of the ledger."""
