"""From pose files to stores: read, map, normalise, cut, keep; every source as recordings."""
