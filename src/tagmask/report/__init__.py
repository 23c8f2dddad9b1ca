"""The report of a run: what its folder holds, as one HTML page."""
