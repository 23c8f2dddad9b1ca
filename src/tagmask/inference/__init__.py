"""What is in a photo, and where: the library behind every door, on arrays in memory."""
