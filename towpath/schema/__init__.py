"""Collections, views and indexes: created before the copy, relaxed for it, restored after it; schema changes since."""
