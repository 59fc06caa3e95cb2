"""Hilum: chest radiographs in by DICOM, AI results out as Structured Reports and JSON."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("hilum")
except PackageNotFoundError:  # a source tree that was never installed, for example in a documentation build
    __version__ = "0+unknown"
