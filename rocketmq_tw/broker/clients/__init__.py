"""Who is connected, and who holds which queue."""
