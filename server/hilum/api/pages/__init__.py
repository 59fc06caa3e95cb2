"""Pages for people: plain HTML from the same ledger snapshots as REST.

All templates, styles and scripts of the pages are in this folder.
"""
