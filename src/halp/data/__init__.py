"""Data: recordings are read, normalised, kept in stores and split."""
