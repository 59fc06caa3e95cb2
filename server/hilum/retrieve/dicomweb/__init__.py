"""A DICOMweb server: QIDO-RS and WADO-RS (PS3.18 chapters 10.4 and 10.6)."""
