"""Collections, views and indexes: created before the copy and relaxed for it, then restored; and later DDL."""
