"""MongoDB, and nothing else of ours: clients, privileges, TLS files, the write block."""
