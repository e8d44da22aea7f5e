"""Clips: how recordings come in, are normalised, kept in stores and split."""
