"""Synthetic chest radiographs as DICOM objects."""
