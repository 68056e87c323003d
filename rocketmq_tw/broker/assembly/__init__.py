"""A broker put together out of its parts, and the life of these."""
