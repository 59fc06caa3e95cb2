"""What goes over an association, as bytes: PDUs (PS3.8 9.3) and command sets (PS3.7 6.3). The same for who receives and who delivers.

And how both load what TLS needs of our own. Standard library only.
"""
