"""The ledger at ten million rows on PostgreSQL: `make bench-fleet`."""
