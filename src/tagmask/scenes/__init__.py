"""The built-in pictures."""
