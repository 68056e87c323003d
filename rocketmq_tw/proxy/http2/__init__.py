"""HTTP/2 for servers: connections, streams and their flow control on Twisted."""
