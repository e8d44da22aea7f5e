"""One file per verb, from a source to its answer: search, classify, segment, statistics, angles … No console,
no HTML.
"""
