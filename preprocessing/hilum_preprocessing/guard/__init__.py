"""Which images are not analysed, and what is in doubt about the others."""
