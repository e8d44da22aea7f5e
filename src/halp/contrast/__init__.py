"""Momentum contrast: the pair of encoders, the queue of past keys, and the losses."""
