package io.towpath.fold;

import io.towpath.record.ContractException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.bson.io.BasicOutputBuffer;

/**
 * Folds the changes of one document in their order, numbered from 0. A document or a delete replaces what came before; an update is
 * applied to the document before it, or merged into the updates before it. Changes whose result folding cannot predict stay single.
 */
public final class Fold {
    /** The writes for some changes, from {@code first} on. */
    public record Part(int first, int changes, List<Folded> writes) {}

    /** An update of more places costs the server more than several updates: it searches each array from its beginning. */
    private static final int MOST_PLACES = 1_000;
    /** Well within the server's limit for one update. */
    private static final long MOST_BYTES = 8L << 20;

    /**
     * An update of fields in an order that is not the server's becomes several writes, each in the server's order: one aggregation
     * pipeline could do it, but costs the server more, and loses what decoding loses (duplicate names, strings that are not UTF-8).
     */
    private static final int MOST_RUNS = 4;

    private final List<Result> results = new ArrayList<>();
    private int changes;

    /** The result of some changes together: a whole document, merged updates, or a single change. */
    private abstract static sealed class Result {
        final int first;
        int changes = 1;

        Result(int first) {
            this.first = first;
        }

        abstract boolean takes(Steps steps, int bytes);

        abstract List<Folded> writes();
    }

    private static final class Whole extends Result {
        private final byte[] bytes;
        private final List<Steps> applied = new ArrayList<>();
        private Container open;

        Whole(int first, byte[] bytes) {
            super(first);
            this.bytes = bytes;
        }

        @Override
        boolean takes(Steps steps, int more) {
            Container container = open == null ? Container.opened(Slice.document(bytes)) : open;
            if (container == null || !steps.areInOrder()) return false;
            for (UpdateStep step : steps.all())
                if (step.names()[0].equals("_id") || steps.writesBelow(step) && container.lacks(step)) return false;
            boolean isChanged = false;
            for (UpdateStep step : steps.all()) {
                if (!container.takes(step, 0)) { // perhaps only as an earlier step has filled an array with nulls
                    if (isChanged) open = applied.isEmpty() ? null : withApplied();
                    return false;
                }
                container.apply(step, 0);
                isChanged = true;
            }
            open = container;
            applied.add(steps);
            return true;
        }

        /** The document with all updates before the last one, of which some steps have changed it. */
        private Container withApplied() {
            Container container = Container.opened(Slice.document(bytes));
            for (Steps steps : applied) steps.all().forEach(step -> container.apply(step, 0));
            return container;
        }

        @Override
        List<Folded> writes() {
            if (open == null) return List.of(new Folded.Document(bytes));
            BasicOutputBuffer out = new BasicOutputBuffer(bytes.length);
            open.writeTo(out);
            return List.of(new Folded.Document(out.toByteArray()));
        }
    }

    private static final class Updates extends Result {
        private final Merge merge = new Merge();
        private long bytes;

        Updates(int first) {
            super(first);
        }

        @Override
        boolean takes(Steps more, int size) {
            // each descent needs another write, and every step checks every write: too many take too long for no use
            if (more.descents() > MOST_RUNS) return false;
            int places = merge.places();
            boolean isFull = places > 0 && (places + more.all().size() > MOST_PLACES || bytes + size > MOST_BYTES);
            if (isFull || !merge.takes(more)) return false;
            merge.add(more);
            bytes += size;
            return true;
        }

        @Override
        List<Folded> writes() {
            if (merge.size() >= changes + MOST_RUNS)
                return IntStream.range(first, first + changes)
                        .<Folded>mapToObj(Folded.Alone::new)
                        .toList();
            return List.copyOf(merge.updates());
        }
    }

    private static final class Closed extends Result {
        private final Folded write;

        Closed(int first, Folded write) {
            super(first);
            this.write = write;
        }

        @Override
        boolean takes(Steps steps, int bytes) {
            return false;
        }

        @Override
        List<Folded> writes() {
            return List.of(write);
        }
    }

    public void document(byte[] bytes) {
        startOver(new Whole(0, bytes));
    }

    public void delete() {
        startOver(new Closed(0, new Folded.Delete()));
    }

    private void startOver(Result result) {
        results.clear();
        results.add(result);
        result.changes = ++changes;
    }

    /** @param bytes the update's size */
    public void update(Steps steps, int bytes) {
        int change = changes++;
        Result last = results.isEmpty() ? null : results.get(results.size() - 1);
        if (last != null && takes(last, steps, bytes)) {
            last.changes++;
            return;
        }
        Updates updates = new Updates(change);
        results.add(takes(updates, steps, bytes) ? updates : new Closed(change, new Folded.Alone(change)));
    }

    private static boolean takes(Result result, Steps steps, int bytes) {
        try {
            return result.takes(steps, bytes);
        } catch (ContractException damaged) {
            return false; // the BSON within a value is damaged: the server will report it
        }
    }

    /** What has to be written, in this order. */
    public List<Part> parts() {
        return results.stream()
                .map(result -> new Part(result.first, result.changes, result.writes()))
                .toList();
    }

    /** One write that has the effect of several changes. */
    public sealed interface Folded {
        /** The document is now this one. */
        record Document(byte[] bytes) implements Folded {}

        /**
         * An update of a document that exists.
         *
         * @param bytes MongoDB's update operators, or the stage of an aggregation pipeline
         * @param lengths path → how many elements the array there must have, so that the update is right
         */
        record Update(byte[] bytes, boolean isStage, Map<String, Integer> lengths) implements Folded {}

        /** The document is gone. */
        record Delete() implements Folded {}

        /** A single change, unfolded. */
        record Alone(int change) implements Folded {}
    }
}
