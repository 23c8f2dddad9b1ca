"""Photos by the million: shards in, shards of masks out, on any disk or object storage."""
