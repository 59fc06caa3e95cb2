"""`hilum models new`: the beginning of a release."""
