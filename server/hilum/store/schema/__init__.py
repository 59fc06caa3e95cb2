"""The ledger's tables, and the conversion between rows and domain types."""
