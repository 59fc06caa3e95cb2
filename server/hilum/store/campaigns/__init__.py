"""Campaigns in the ledger: their plans, and how far each series is."""
