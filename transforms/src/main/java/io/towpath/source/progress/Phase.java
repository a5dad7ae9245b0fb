package io.towpath.source.progress;

import java.util.Locale;

/** What the connector does: it copies a round, streams until it has passed the round's rows, and so on; then it only streams. */
enum Phase {
    /** The rows of a round are read. */
    COPY,
    /** The stream runs, and the next round follows. */
    CATCH_UP,
    /** The initial copy is over. */
    STREAM;

    static Phase parse(String text) {
        return valueOf(text.replace('-', '_').toUpperCase(Locale.ROOT));
    }

    /** As the root offset has it. */
    @Override
    public String toString() {
        return name().replace('_', '-').toLowerCase(Locale.ROOT);
    }
}
