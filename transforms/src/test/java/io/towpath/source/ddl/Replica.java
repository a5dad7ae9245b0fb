package io.towpath.source.ddl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.connector.TextHeaders;
import io.towpath.record.Change;
import io.towpath.record.RecordHeaders;
import io.towpath.record.SchemaChange;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.connect.source.SourceRecord;
import org.bson.BsonDocument;
import org.bson.RawBsonDocument;

/** What a destination makes of a log, in its order. Fails on what a real one would refuse, and on what is out of order. */
final class Replica {
    /** A collection or a view. */
    static final class Collection {
        final Map<ByteBuffer, BsonDocument> documents = new HashMap<>();
        final Map<String, BsonDocument> indexes = new TreeMap<>();
        BsonDocument options = new BsonDocument();
        /** The change whose rows are not all there yet; empty: they are. */
        String awaits = "";
        /** Whether it was made since, or rows of it came: it may be gone before the copy looks which collections there are. */
        boolean isKnown = true;

        boolean mayLackDocuments() {
            return !awaits.isEmpty() || !isKnown;
        }
    }

    /** Whether documents create their collection, as before there are schema changes in the log. */
    boolean createsImplicitly;

    private final String prefix;
    private final boolean renames;
    final Map<String, Collection> collections = new TreeMap<>();
    final List<SchemaChange> changes = new ArrayList<>();
    private final Map<String, Set<String>> copies = new HashMap<>();

    /** @param renames whether a rename moves the documents; otherwise it leaves an empty collection, as a replay does */
    Replica(String prefix, boolean renames) {
        this.prefix = prefix;
        this.renames = renames;
    }

    /** The records of one transaction. */
    void apply(List<SourceRecord> records) {
        copies.clear();
        for (SourceRecord record : records) {
            if (!record.topic().startsWith(prefix + ".")) continue;
            byte[] key = (byte[]) record.key();
            if (SchemaChange.isKey(key)) copy(record, SchemaChange.decode(key, (byte[]) record.value()));
            else document(record);
        }
        copies.forEach((id, seen) -> assertEquals(Set.of(), seen, () -> "partitions without a copy of " + id));
    }

    private void copy(SourceRecord record, SchemaChange change) {
        String place = record.topic() + "-" + record.kafkaPartition();
        if (!copies.containsKey(change.id())) {
            Set<String> places = new HashSet<>();
            change.partitions().forEach((topic, count) -> {
                for (int partition = 0; partition < count; partition++) places.add(topic + "-" + partition);
            });
            copies.put(change.id(), places);
            assertTrue(changes.stream().noneMatch(known -> known.id().equals(change.id())), () -> "twice: " + change);
            changes.add(change);
            make(change);
        }
        assertTrue(copies.get(change.id()).remove(place), () -> "unexpected " + place + " of " + change);
    }

    private void make(SchemaChange change) {
        String name = change.namespace();
        Collection present = collections.get(name);
        switch (change.kind()) {
            case CREATE -> {
                if (present == null) collections.put(name, created(change));
                else if (change.isSnapshot())
                    index(change).forEach((index, specification) -> present.indexes.putIfAbsent(index, specification));
                else assertEquals(change.options(), present.options, () -> "refused: " + change);
            }
            case CREATE_INDEXES -> index(change).forEach((index, specification) -> {
                assertNotNull(present, change::toString);
                BsonDocument known = present.indexes.putIfAbsent(index, specification);
                if (known != null) assertEquals(known, specification, () -> "refused: " + change);
            });
            case DROP_INDEXES -> {
                if (present != null) index(change).keySet().forEach(present.indexes::remove);
            }
            case MODIFY -> {
                assertNotNull(present, change::toString);
                change.options().forEach((option, value) -> {
                    if (option.equals("index")) modify(present, value.asDocument());
                    else present.options.put(option, value);
                });
            }
            case DROP -> collections.remove(name);
            case REPLACE -> collections.put(name, awaiting(created(change), change));
            case RENAME -> {
                collections.remove(name);
                boolean moves = renames && present != null;
                collections.put(change.to(), moves ? present : awaiting(created(change), change));
                if (moves && present.mayLackDocuments()) awaiting(present, change);
            }
            case COMPLETE -> {
                if (present != null && present.awaits.equals(change.to())) present.awaits = "";
            }
        }
    }

    private static void modify(Collection collection, BsonDocument index) {
        BsonDocument specification =
                collection.indexes.get(index.getString("name").getValue());
        if (specification == null) return; // of a collection that was gone when it was described
        index.forEach((option, value) -> {
            if (!option.equals("name")) specification.put(option, value);
        });
    }

    private static Map<String, BsonDocument> index(SchemaChange change) {
        Map<String, BsonDocument> indexes = new TreeMap<>();
        change.indexes().forEach(index -> indexes.put(index.getString("name").getValue(), copy(index)));
        return indexes;
    }

    private static BsonDocument copy(BsonDocument document) {
        BsonDocument copy = new BsonDocument();
        copy.putAll(document);
        return copy;
    }

    private static Collection created(SchemaChange change) {
        Collection collection = new Collection();
        collection.options = copy(change.options());
        collection.isKnown = !change.isSnapshot();
        collection.indexes.putAll(index(change));
        return collection;
    }

    private static Collection awaiting(Collection collection, SchemaChange change) {
        collection.awaits = change.id();
        return collection;
    }

    private void document(SourceRecord record) {
        String name = record.topic().substring(prefix.length() + 1);
        String operation =
                TextHeaders.read(record, RecordHeaders.Part.OPERATION).orElseThrow();
        // a collection that was renamed while the task began
        boolean isCopied = operation.equals("r") && changes.stream().allMatch(SchemaChange::isSnapshot);
        if (createsImplicitly || isCopied) collections.computeIfAbsent(name, any -> new Collection());
        Collection collection = collections.get(name);
        BsonDocument key = new RawBsonDocument((byte[]) record.key());
        assertNotNull(
                collection, () -> operation + " of " + key + " without its collection " + name + " after " + history());
        ByteBuffer id = ByteBuffer.wrap((byte[]) record.key());
        if (record.value() == null) {
            collection.documents.remove(id);
            return;
        }
        BsonDocument value = BsonDocument.parse(new RawBsonDocument((byte[]) record.value()).toJson());
        if (value.containsKey("_id")) {
            if (operation.equals("r")) collection.isKnown = true;
            BsonDocument before = collection.documents.put(id, value);
            if (operation.equals("c") && collection.awaits.isEmpty() && before != null)
                throw new AssertionError("inserted twice: " + value + " in " + name);
            return;
        }
        assertEquals(Set.of("$set"), value.keySet());
        BsonDocument document = collection.documents.get(id);
        if (document != null) document.putAll(value.getDocument("$set"));
        else
            assertTrue(
                    TextHeaders.rowFollows(record),
                    () -> "update without its document " + key + " of " + name + " at " + record.sourceOffset()
                            + " after " + history());
        assertTrue(Change.decode((byte[]) record.value()) instanceof Change.Update);
    }

    private String history() {
        return changes.stream()
                .map(change -> String.join(" ", change.id(), change.kind().text(), change.to()))
                .collect(Collectors.joining("; "));
    }

    Set<String> awaiting() {
        Set<String> names = new TreeSet<>();
        collections.forEach((name, collection) -> {
            if (!collection.awaits.isEmpty()) names.add(name);
        });
        return names;
    }
}
