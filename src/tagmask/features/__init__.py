"""Tokens of frozen blocks: computed once per photo, kept, and read by everything that follows."""
