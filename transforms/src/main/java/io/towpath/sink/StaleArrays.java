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
 * Arrays that are not at the destination as they were at the source, as an update that splices or sets them became a dead letter. Later
 * splices of them have no meaning, even where the length is right, until a record has the whole array.
 */
final class StaleArrays {
    /** Of more documents the splices are tried. */
    private static final int MOST_DOCUMENTS = 10_000;

    private final Map<Write.DocumentId, Set<String>> paths = new HashMap<>();

    /** The change becomes a dead letter. */
    void add(Writes.RecordedChange change) {
        if (!(change.change() instanceof Change.Update update)) return;
        if (paths.size() >= MOST_DOCUMENTS && !paths.containsKey(change.document())) return;
        Set<String> stale = paths.computeIfAbsent(change.document(), unused -> new HashSet<>());
        stale.addAll(update.setPaths());
        update.splices().forEach(splice -> stale.add(splice.path()));
    }

    /** The stale array that the change splices. When there is none, the change will be applied, and what it has whole is stale no more. */
    Optional<String> in(Writes.RecordedChange change) {
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
