"""Analysis: numbers computed from runs, for reports that draw them and for `reproduce` that tabulates them.

Nothing here draws or prints. `similarities.py` reads what training logged, `prototypes.py` and
`embedding.py` run the encoder again, `paired_difference.py` compares seeds.
"""
