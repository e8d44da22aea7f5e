"""Analysis: numbers computed from runs, for reports that draw them and for `reproduce` that tabulates them.

Nothing here draws or prints. `kept_positives.py` and `similarities.py` read what training logged, `prototypes.py` and
`embedding.py` run the encoder again, `paired_difference.py` compares seeds.
"""
