"""Documents that the source `files` makes, and the questions about them, whose answers are computed from their tables.

Everything comes from a `random.Random` that the caller seeds, so the same seed gives the same bytes.
"""
