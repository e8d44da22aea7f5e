"""Readers: one file a format, each turning pose files into clips; `halp prepare` finds them by name in a registry."""
