"""Zero-shot releases beside another implementation of CLIP."""
