"""Hilum: chest radiographs in by DICOM, AI results out as Structured Reports and JSON."""

# A literal, which the build reads: to ask the installed package for it takes each process and each
# command 60 ms of CPU.
__version__ = "0.1.0"

# PS3.7 D.3.3.2: our identity on associations and in files. The UID stays for ever, the name says
# which version wrote something.
IMPLEMENTATION_CLASS_UID = "2.25.126340185254959388715768875720900498129"
IMPLEMENTATION_VERSION_NAME = f"HILUM_{__version__}"[:16]
