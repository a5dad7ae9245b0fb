package io.towpath.sink;

import com.mongodb.MongoNamespace;
import io.towpath.record.Change;
import io.towpath.record.Splice;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Stream;

/**
 * Documents that are not at the destination as they were at the source, because a change of them became a dead letter: the arrays that it
 * sets or splices, or the whole document. Later splices of such an array have no meaning, even where the length is right, until a record
 * has the whole array. A later update of such a document that finds no document says nothing new, until a record has the whole document.
 */
final class StaleDocuments {
    /** Of more documents the splices are tried, and an update that finds none is only counted. */
    static final int MOST = 10_000;

    /** No update names it, so only a document or a delete removes it. */
    private static final String WHOLE = "";

    private final Map<Write.DocumentId, Set<String>> paths = new HashMap<>();

    /** The change becomes a dead letter. */
    void add(Writes.RecordedChange change) {
        if (change.change() instanceof Change.Document) addWhole(change.document());
        if (!(change.change() instanceof Change.Update update) || isFull(change.document())) return;
        Set<String> stale = paths.computeIfAbsent(change.document(), unused -> new HashSet<>());
        stale.addAll(update.setPaths());
        update.splices().forEach(splice -> stale.add(splice.path()));
    }

    /** The document is not at the destination. Returns whether that is new, and there is room to remember it. */
    boolean addWhole(Write.DocumentId document) {
        if (isFull(document)) return false;
        return paths.computeIfAbsent(document, unused -> new HashSet<>()).add(WHOLE);
    }

    private boolean isFull(Write.DocumentId document) {
        return paths.size() >= MOST && !paths.containsKey(document);
    }

    /** The stale array that the change splices. When there is none, the change will be applied, and what it has whole is stale no more. */
    Optional<String> arrayIn(Writes.RecordedChange change) {
        Set<String> stale = paths.get(change.document());
        if (stale == null) return Optional.empty();
        if (!(change.change() instanceof Change.Update update)) {
            paths.remove(change.document());
            return Optional.empty();
        }
        Optional<String> spliced = update.splices().stream()
                .map(Splice::path)
                .filter(stale::contains)
                .findFirst();
        if (spliced.isPresent()) return spliced;
        Stream.concat(update.setPaths().stream(), update.unset().stream())
                .forEach(place -> stale.removeIf(path -> (path + '.').startsWith(place + '.')));
        if (stale.isEmpty()) paths.remove(change.document());
        return Optional.empty();
    }

    /** The documents of this namespace are others now, or will be whole before an array of them is spliced. */
    void forget(MongoNamespace namespace) {
        paths.keySet().removeIf(document -> document.namespace().equals(namespace));
    }

    void clear() {
        paths.clear();
    }
}
