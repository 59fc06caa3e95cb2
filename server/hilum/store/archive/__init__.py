"""Objects as files: durable, named by ourselves, compared with the ledger."""
