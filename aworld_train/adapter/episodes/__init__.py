"""Playing, recording and scoring episodes: what the workers of every training framework share."""
