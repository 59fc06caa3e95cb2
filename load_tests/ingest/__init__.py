"""`make bench-ingest`: the cost of receiving, beside DCMTK."""
