"""What a person does with an encoder: embed, search, classify, segment, cluster, compare, export, estimators."""
