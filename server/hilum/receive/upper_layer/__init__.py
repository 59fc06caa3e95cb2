"""An established association: from its socket to requests and pieces of data sets, and back.

It knows the socket, the accepted contexts and a `Provider` for each kind of request, and nothing of
files, ledgers or pynetdicom.
"""
