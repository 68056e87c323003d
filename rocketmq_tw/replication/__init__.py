"""Master and slave: sans-IO frames and state, and the Twisted links around them."""
