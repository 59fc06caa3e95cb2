"""Readings of one study become results: pure decisions, no clock, no disk, no ledger."""

from hilum.assemble.study_result import Close, WaitingStudy, assemble

__all__ = ["Close", "WaitingStudy", "assemble"]
