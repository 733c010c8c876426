"""Models that are made here instead of downloaded: a tiny one that half-knows how to use a calculator.

`aworld_train.model.tiny.build` makes it. Everything torch stays out of this file and of ``tiny``'s own imports, so
that asking for help costs nothing.
"""
