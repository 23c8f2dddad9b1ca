"""Training: the loop, its resume points, and what is trained with it."""
