"""Releases: manifests, coded concepts, and the builder that turns weights into Triton model trees.

Nothing here imports torch or an engine before something is built, so that every process may read
the catalogue.
"""
