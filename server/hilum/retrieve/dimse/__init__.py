"""A PACS as a source: C-FIND, and C-MOVE or C-GET (PS3.4 Annex C), by pynetdicom.

pynetdicom negotiates, encodes and decodes. One association is open at a time, with one request.
"""
