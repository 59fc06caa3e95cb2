"""Images with known answers, by which a release is accepted and verified."""
