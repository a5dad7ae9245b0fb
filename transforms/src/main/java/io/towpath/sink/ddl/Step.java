package io.towpath.sink.ddl;

import org.bson.BsonBinary;

/** What a task does next about a schema change at which partitions of it wait. */
enum Step {
    WAIT,
    MAKE,
    SKIP,
    PASS;

    /**
     * @param stored null when nothing is stored of the change yet
     * @param makes whether all of its partitions wait there, and this task is the one that makes it
     */
    static Step after(Progress stored, boolean makes) {
        if (stored == null) return WAIT;
        if (State.OVER.contains(stored.state())) return PASS;
        if (stored.decision() == Decision.SKIP && stored.state() != State.RUNNING) return SKIP;
        return makes ? MAKE : WAIT;
    }

    /** What someone decided about a change. */
    enum Decision {
        NONE,
        APPLY,
        SKIP
    }

    /**
     * What the destination stores of a change, as far as the sink reads it.
     *
     * @param isRefused whether it is refused, or tried again after that
     * @param noted the collections that were there when it was begun; null when it was not begun
     */
    record Progress(State state, Decision decision, int arrived, String reason, boolean isRefused, Noted noted) {}

    /**
     * The collections that a change met when it was first begun. A task that makes it again, or does so late, must not drop others.
     *
     * @param from the uuid of the change's own collection; null when there was none
     * @param to that of the new name of a renamed one; null when there was none
     */
    record Noted(BsonBinary from, BsonBinary to) {}
}
