"""The explorer: a page on this machine to look into a run, correct it, and learn again."""
