"""From pose files to stores: read, map, normalise, cut and write."""
