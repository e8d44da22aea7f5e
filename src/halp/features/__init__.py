"""Features: from a source through a pretrained encoder to a feature table."""
