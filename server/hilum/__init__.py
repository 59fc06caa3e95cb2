"""Hilum: chest radiographs in by DICOM, AI results out as Structured Reports and JSON."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("hilum")
except PackageNotFoundError:  # a source tree that was never installed, for example in a documentation build
    __version__ = "0+unknown"

# PS3.7 D.3.3.2: our identity on associations and in files. The UID stays for ever, the name says which version wrote something.
IMPLEMENTATION_CLASS_UID = "2.25.126340185254959388715768875720900498129"
IMPLEMENTATION_VERSION_NAME = f"HILUM_{__version__}"[:16]
