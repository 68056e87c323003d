"""A broker's part in its group of replicas."""
