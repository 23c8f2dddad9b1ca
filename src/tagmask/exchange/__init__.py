"""Masks to and from other tools: one file per tool or format, and per door to a tool at work."""
