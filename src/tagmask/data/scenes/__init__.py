"""The built-in scenes: photo-like pictures with exact masks."""
