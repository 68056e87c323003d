"""What administrators ask of a broker."""
