"""Models that are made instead of downloaded: a tiny one that uses a calculator in about half of the cases.

`aworld_train.model.tiny.build` makes it. Neither this file nor ``tiny`` imports torch at the top, so that ``--help``
is fast.
"""
