"""Playing, recording and scoring episodes: the part that the workers of every training framework share.

A framework brings the engine that samples tokens. Everything around the engine is in this folder, so that an episode is
the same whichever framework trains on it. Nothing in this folder names a framework.
"""
