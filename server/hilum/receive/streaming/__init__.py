"""The Storage SCP of an association that somebody else has negotiated: from its socket to pieces of data sets, and responses back.

It knows the socket, the accepted contexts and a `Provider`, and nothing of files, ledgers or pynetdicom.
"""
