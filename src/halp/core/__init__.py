"""Errors, settings, files, progress, random draws and processes: what every room needs and what knows no
joint and no clip.
"""
