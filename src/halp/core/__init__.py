"""Errors, settings, files, progress, random draws and processes: needed everywhere, independent of poses."""
