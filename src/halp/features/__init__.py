"""Features: the stage between data and everything that has an encoder (source → pretrained encoder → feature
table).
"""
