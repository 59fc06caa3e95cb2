"""From an author's checkpoint to a release folder: `hilum models import`.

Pickles are read in a process of their own.
"""
