"""Episodes of the store in the formats of other programs, one module for each.

A format's writer is given one episode after the other, so that a run of any size is exported in constant memory.
"""
