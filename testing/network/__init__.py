"""Senders and receivers of DICOM objects that cost little."""
