"""The requests that a name server answers: a module for each family, code → handler."""
