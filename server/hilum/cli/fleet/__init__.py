"""Commands about all hosts of an installation, and the ledger that they share."""
