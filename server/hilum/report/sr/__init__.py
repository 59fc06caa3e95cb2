"""The content of the Structured Report, for each SOP Class."""
