"""Load generator, scenarios and the phantom.

Synthetic chest radiographs that are ours to publish.
"""
