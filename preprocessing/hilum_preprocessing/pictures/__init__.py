"""Radiographs that come as PNG or JPEG files, and not as DICOM objects."""
