"""Containers of content items."""

from __future__ import annotations

from collections.abc import Sequence

from highdicom import sr
from pydicom.sr.coding import Code


def container(name: Code, items: Sequence[sr.ContentItem]) -> sr.ContainerContentItem:
    """Below the root; of separate items, so that viewers show the name of each (PS3.3 C.18.8)."""
    made = sr.ContainerContentItem(
        name=name, is_content_continuous=False, relationship_type=sr.RelationshipTypeValues.CONTAINS
    )
    made.ContentSequence = sr.ContentSequence(items)
    return made
