"""One file per verb, from a source to its answer: search, classify, segment, … No console, HTML or options."""
