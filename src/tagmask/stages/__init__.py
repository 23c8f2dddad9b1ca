"""The stages of a run: what each reads, writes, and skips because it is done."""
