"""What users rely on: names, commands, and the numbers of every method."""
