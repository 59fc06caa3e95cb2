"""Work items of worklist managers: claimed, awaited, ended."""
