package io.towpath.record;

/** The newest length of one array: everything from there on is gone. */
public record Truncation(String path, int newSize) {
    public Truncation {
        if (newSize < 0) {
            throw new ContractException(
                    "array '%s' cut to %d elements: a length cannot be negative".formatted(path, newSize));
        }
    }
}
