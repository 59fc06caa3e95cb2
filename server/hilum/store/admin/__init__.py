"""Operations of a person on the ledger and the archive."""
