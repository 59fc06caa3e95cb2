"""Sources of images that have to be asked: a PACS, DICOMweb, folders and lists.

This room asks and fetches. It knows neither the ledger nor the archive: objects go to an
`ObjectStore` that the caller gives, or come in by our own listener (C-MOVE).
"""
