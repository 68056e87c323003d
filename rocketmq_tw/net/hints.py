"""What errors of several clients say beside what went wrong."""

#: Where a server closes a plain connection before it answers anything.
WANTS_TLS = (
    "it closed the connection before a word, as a server does that takes TLS only"
    " (tls.server.mode=enforcing): speak TLS with useTLS=true of a broker, --tls of rmqadmin, tls="
    " of a client"
)
