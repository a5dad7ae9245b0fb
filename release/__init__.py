"""What is released: wheels, sources, archives, versions, SBOMs, checksums. See docs/releasing.md."""
