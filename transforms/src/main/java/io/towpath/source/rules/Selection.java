package io.towpath.source.rules;

import io.towpath.record.BsonElements;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import org.bson.BsonArray;
import org.bson.BsonDocument;

/** Which documents of a collection leave: those that match a filter, which only the server applies. */
public final class Selection {
    private static final String NUMBER = "[0-9]+";

    private final BsonDocument filter;
    /** The fields on which it depends. */
    private final Place fields = Place.ofDocument();
    /** Whether it depends on other fields too, or on fields that are not known. */
    private boolean isAboutAll;

    /** @param filters all of which a document has to match; not empty */
    Selection(List<BsonDocument> filters) {
        filter = all(filters);
        List<List<byte[]>> paths = new ArrayList<>();
        add(filter, paths);
        paths.sort(Comparator.comparingInt(List::size));
        paths.forEach(path -> fields.name(path, Action.DROP));
    }

    /** The filter that matches what all of these match. */
    public static BsonDocument all(List<BsonDocument> filters) {
        return new BsonDocument("$and", new BsonArray(filters));
    }

    public BsonDocument filter() {
        return filter;
    }

    private void add(BsonDocument part, List<List<byte[]>> paths) {
        part.forEach((name, value) -> {
            switch (name) {
                case "$and", "$or", "$nor" -> value.asArray().forEach(inner -> add(inner.asDocument(), paths));
                case "$comment" -> {}
                default -> {
                    List<byte[]> path = name.startsWith("$")
                            ? List.of()
                            : Place.segments(name, segment -> !segment.matches(NUMBER));
                    if (path.isEmpty()) isAboutAll = true;
                    else paths.add(path);
                }
            }
        });
    }

    /** Whether an update may change what the filter says of its document: it changes a field on which that depends, or a part of one. */
    public boolean dependsOn(byte[] update) {
        if (isAboutAll) return true;
        BsonElements parts = new BsonElements(update, 0);
        while (parts.next()) {
            BsonElements paths = new BsonElements(update, parts.valueStart());
            while (paths.next())
                if (!fields.of(update, paths.nameStart(), paths.valueStart() - 1)
                        .keepsAll()) return true;
        }
        return false;
    }
}
