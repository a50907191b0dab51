"""Random draws, memory, threads and progress."""
