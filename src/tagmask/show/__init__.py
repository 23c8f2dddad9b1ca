"""Pictures of what the other rooms compute: overlays, contact sheets, affinity, curves."""
