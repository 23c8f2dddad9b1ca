"""The studio: a page on this machine that leads from photos to checked masks, and looks inside."""
