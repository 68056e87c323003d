"""Builds a server's object graph from its configuration; nothing else."""
