"""What is released: wheel, sources, archives of plugin and Kafka, versions, SBOMs, checksums. See docs/releasing.md."""
