"""Features: from data to everything that has an encoder (source → pretrained encoder → feature table)."""
