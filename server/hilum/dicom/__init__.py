"""DIMSE messages as bytes: PDUs (PS3.8 9.3) and command sets (PS3.7 6.3), for both directions.

`own_certificate` loads our certificate and key for TLS. Standard library only.
"""
