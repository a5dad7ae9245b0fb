"""MongoDB only: clients, privileges, TLS files, the write block."""
