"""The name server: route table, broker liveness, key-value config."""
