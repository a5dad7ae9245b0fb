package io.towpath.sink.ddl;

import java.util.Locale;
import java.util.Set;

/** How far a schema change is at the destination. */
enum State {
    /** Not all of its partitions have come to it. */
    WAITING,
    RUNNING,
    /** It would drop a collection, and needs a decision. */
    HELD,
    /** The destination does not take it; it is tried again from time to time. */
    REFUSED,
    DONE,
    SKIPPED;

    static final Set<State> OVER = Set.of(DONE, SKIPPED);

    /** As it is stored. */
    String text() {
        return name().toLowerCase(Locale.ROOT);
    }

    static State of(String text) {
        return valueOf(text.toUpperCase(Locale.ROOT));
    }
}
