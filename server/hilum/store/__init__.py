"""The store: bytes in the archive, rows in the ledger."""
