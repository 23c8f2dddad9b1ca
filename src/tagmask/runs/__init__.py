"""All stages as one run."""
