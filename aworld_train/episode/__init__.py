"""What an episode is: the types with which it is played, scored, trained on, stored, shown and exported."""
