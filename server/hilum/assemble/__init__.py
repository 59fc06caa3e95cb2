"""Readings of one study become results: pure decisions, no clock, no disk, no ledger."""

from hilum.assemble.closing import Close, WaitingStudy, assemble

__all__ = ["Close", "WaitingStudy", "assemble"]
