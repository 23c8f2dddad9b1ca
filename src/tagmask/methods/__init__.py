"""Localisation maps by every method: one registry, one signature."""
