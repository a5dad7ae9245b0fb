package io.towpath.sink;

import io.towpath.fold.Fold;
import io.towpath.record.Change;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** Folds a batch's changes into as few writes as have the same effect. */
final class Folder {
    private Folder() {}

    /**
     * The writes, those of one document in their order.
     *
     * @param apart documents whose changes stay single writes
     */
    static List<Write> fold(List<Writes.RecordedChange> changes, Set<Write.DocumentId> apart) {
        if (apart.isEmpty() && areDistinct(changes)) return alone(changes);
        Map<Write.DocumentId, List<Writes.RecordedChange>> documents = new LinkedHashMap<>();
        for (Writes.RecordedChange change : changes)
            documents
                    .computeIfAbsent(change.document(), unused -> new ArrayList<>(1))
                    .add(change);
        List<Write> writes = new ArrayList<>(documents.size());
        documents.forEach((document, itsChanges) -> {
            if (apart.contains(document)) writes.addAll(alone(itsChanges));
            else fold(itsChanges, writes);
        });
        return writes;
    }

    /** Whether each is about another document. */
    private static boolean areDistinct(List<Writes.RecordedChange> changes) {
        Set<Write.DocumentId> documents = new HashSet<>(changes.size() * 2);
        for (Writes.RecordedChange change : changes) if (!documents.add(change.document())) return false;
        return true;
    }

    /** One write or more per change, in the changes' order. */
    static List<Write> alone(List<Writes.RecordedChange> changes) {
        List<Write> writes = new ArrayList<>(changes.size());
        for (Writes.RecordedChange change : changes) fold(List.of(change), writes);
        return writes;
    }

    private static void fold(List<Writes.RecordedChange> changes, List<Write> writes) {
        if (changes.size() == 1 && changes.get(0).isOneWrite()) {
            writes.addAll(Writes.of(changes.get(0)));
            return;
        }
        Fold fold = new Fold();
        for (Writes.RecordedChange change : changes) {
            if (change.change() instanceof Change.Document) fold.document(change.value());
            else if (change.change() instanceof Change.Update) fold.update(change.steps(), change.value().length);
            else fold.delete();
        }
        boolean isNew = changes.get(0).isNew();
        for (Fold.Part part : fold.parts()) {
            List<Writes.RecordedChange> folded = changes.subList(part.first(), part.first() + part.changes());
            for (Fold.Folded write : part.writes()) {
                if (write instanceof Fold.Folded.Alone alone) writes.addAll(Writes.of(changes.get(alone.change())));
                else writes.addAll(Writes.of(folded, write, isNew));
            }
        }
    }
}
