package io.towpath.source.copy;

/** A collection is not in the table whose record ids divide it. */
@SuppressWarnings("serial")
final class OutdatedPlanException extends RuntimeException {
    OutdatedPlanException(String message) {
        super(message);
    }
}
