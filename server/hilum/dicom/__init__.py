"""DICOM as bytes: PDUs, command sets, elements of a header, character sets, encoders.

PS3.5, PS3.7 6.3 and PS3.8 9.3, for both directions. `own_certificate` loads our certificate and key
for TLS. `pdu`, `command_set`, `associate` and `encoding` need no pydicom: the upper layer of
reception uses them.
"""
