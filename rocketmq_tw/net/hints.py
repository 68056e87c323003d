"""What errors of several clients say beside what went wrong."""

#: Behind the reason why a plain connection ended, where nothing had been received over it.
WANTS_TLS = (
    "It had answered nothing: a server that takes TLS only (tls.server.mode=enforcing) does so;"
    " useTLS=true of a broker, --tls of rmqadmin and tls= of clients speak it"
)
