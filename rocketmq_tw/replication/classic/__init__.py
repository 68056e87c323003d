"""Classic HA: a slave says where its log ends, and gets what follows."""
