"""The zoo: published systems beside the core, one file each.

They are registered through `halp.extend` like anybody's plugin and import nothing else of halp but its public
blocks (`halp.losses`, `halp.sphere`, `halp.hallucinate`). A recipe that names one of their components loads
them.
"""
