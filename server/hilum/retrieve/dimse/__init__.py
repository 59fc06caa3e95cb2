"""A PACS by DIMSE: C-FIND, C-MOVE and C-GET (PS3.4 Annex C)."""
