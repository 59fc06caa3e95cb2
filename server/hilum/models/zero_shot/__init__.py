"""Zero-shot releases: prompts, their tokens and their embeddings, made once and never served."""
