"""Folders and buckets of DICOM files, and lists of PNG and JPEG files."""
