package io.towpath.record;

import org.apache.kafka.connect.errors.DataException;

/** The newest length of one array: everything from there on is gone. */
public record Truncation(String path, int newSize) {
    public Truncation {
        if (newSize < 0) {
            throw new DataException(
                    "array '%s' cut to %d elements: a length cannot be negative".formatted(path, newSize));
        }
    }
}
