"""Lists of accession numbers or Study Instance UIDs, as CSV or Parquet."""
