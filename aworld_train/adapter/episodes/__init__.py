"""Playing, recording and scoring episodes: what the workers of every training framework share.

A framework brings the engine that samples tokens; everything around it is here, so that an episode is the same thing
whichever framework trains on it. Nothing here names a framework.
"""
