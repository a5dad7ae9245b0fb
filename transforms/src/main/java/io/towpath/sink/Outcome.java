package io.towpath.sink;

/** The outcome of one attempt to apply records in a transaction. */
sealed interface Outcome {
    /**
     * Committed.
     *
     * @param openNs how long the transaction was open until the server was asked to commit
     */
    record Applied(long openNs) implements Outcome {}

    /** Nothing is written, as the destination refuses one of the writes. */
    record Refused(Write write, Verdict verdict, int code, String reason) implements Outcome {}

    /** Nothing is written, or it is unknown whether all is: the offsets will show. */
    record Failed(Verdict verdict, int records, RuntimeException error) implements Outcome {}

    /** Nothing is written, as the offsets are not where they were expected. */
    record Displaced() implements Outcome {}
}
