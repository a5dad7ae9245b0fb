package io.towpath.source.ddl;

import io.towpath.debezium.SourceCluster;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Predicate;
import org.bson.BsonBinary;
import org.bson.BsonBoolean;
import org.bson.BsonDocument;
import org.bson.BsonString;

/**
 * Collections and views as they were at an earlier time: read as they are, and then each later change undone. Where the source was read
 * while it changed, undoing gives the same: each change says what was before.
 */
final class Catalog {
    /** A collection or a view. */
    static final class Entry {
        private String namespace;
        private final boolean isView;
        private BsonDocument options;
        private final Map<String, BsonDocument> indexes = new LinkedHashMap<>();

        private Entry(String namespace, boolean isView, BsonDocument options) {
            this.namespace = namespace;
            this.isView = isView;
            this.options = options;
        }

        String namespace() {
            return namespace;
        }

        boolean isView() {
            return isView;
        }

        /** As {@code create} takes them. */
        BsonDocument options() {
            return options;
        }

        /** Without that of {@code _id}. */
        List<BsonDocument> indexes() {
            return List.copyOf(indexes.values());
        }
    }

    /** How often it is read again because a collection was renamed during that: its indexes are asked for by its name. */
    static final int MOST_READS = 10;

    private static final String COLLECTION = "collection";
    private static final String VIEW = "view";
    private static final String ID_INDEX = "_id_";

    private final Map<BsonBinary, Entry> collections = new LinkedHashMap<>();
    private final Map<String, Entry> views = new LinkedHashMap<>();

    private Catalog() {}

    /** What a selection includes. Throws the driver's exceptions. */
    static Catalog read(SourceCluster source, Predicate<String> selection, boolean withIndexes) {
        Catalog catalog = new Catalog();
        for (String database : source.databases()) {
            for (BsonDocument listed : source.collections(database, new BsonDocument())) {
                if (selection.test(namespace(database, listed))) catalog.add(source, database, listed, withIndexes);
            }
        }
        return catalog;
    }

    /** The collection with this UUID, whatever its name. Throws the driver's exceptions. */
    static Catalog read(SourceCluster source, String database, BsonBinary uuid) {
        Catalog catalog = new Catalog();
        for (BsonDocument listed : source.collections(database, new BsonDocument("info.uuid", uuid)))
            catalog.add(source, database, listed, true);
        return catalog;
    }

    private void add(SourceCluster source, String database, BsonDocument listed, boolean withIndexes) {
        String namespace = namespace(database, listed);
        String type = listed.getString("type").getValue();
        Entry entry = new Entry(namespace, type.equals(VIEW), listed.getDocument("options", new BsonDocument()));
        if (entry.isView) views.put(namespace, entry);
        if (!type.equals(COLLECTION)) return;
        if (withIndexes) source.indexes(namespace).forEach(index -> addIndex(entry, index));
        collections.put(listed.getDocument("info").getBinary("uuid"), entry);
    }

    private static void addIndex(Entry entry, BsonDocument index) {
        String name = index.getString("name").getValue();
        boolean isClustered = index.getBoolean("clustered", BsonBoolean.FALSE).getValue();
        if (!name.equals(ID_INDEX) && !isClustered) entry.indexes.put(name, index);
    }

    private static String namespace(String database, BsonDocument listed) {
        return database + "." + listed.getString("name").getValue();
    }

    /** Undoes these events: all up to some time after this was read. */
    Catalog before(Collection<SchemaEvent> events) {
        List<SchemaEvent> reversed = new ArrayList<>(events);
        Collections.reverse(reversed);
        reversed.forEach(this::undo);
        return this;
    }

    private void undo(SchemaEvent event) {
        if (event.uuid().isEmpty()) {
            if (event.is(SchemaEvent.CREATE)) views.remove(event.namespace());
            return;
        }
        BsonBinary uuid = event.uuid().get();
        // what a dropped collection was is unknown, and all that was done to it before comes again
        if (event.is(SchemaEvent.CREATE) || event.is(SchemaEvent.DROP)) collections.remove(uuid);
        Entry entry = collections.get(uuid);
        if (entry == null) return;
        switch (event.kind()) {
            case SchemaEvent.RENAME -> entry.namespace = event.namespace();
            case SchemaEvent.CREATE_INDEXES -> event.indexes()
                    .forEach(index ->
                            entry.indexes.remove(index.getString("name").getValue()));
            case SchemaEvent.DROP_INDEXES -> event.indexes().forEach(index -> addIndex(entry, index));
            case SchemaEvent.MODIFY -> unmodify(entry, event);
            default -> {}
        }
    }

    private static void unmodify(Entry entry, SchemaEvent event) {
        BsonDocument options = event.before()
                .getDocument("collectionOptions", new BsonDocument())
                .clone();
        options.remove("uuid");
        entry.options = options;
        BsonDocument index = event.description().getDocument("index", new BsonDocument());
        BsonDocument former = event.before().getDocument("indexOptions", new BsonDocument());
        for (Map.Entry<String, BsonDocument> known : entry.indexes.entrySet()) {
            BsonDocument specification = known.getValue();
            boolean isModified = new BsonString(known.getKey()).equals(index.get("name"))
                    || specification.get("key").equals(index.get("keyPattern"));
            if (!isModified) continue;
            BsonDocument restored = specification.clone();
            for (String option : index.keySet())
                if (!option.equals("name") && !option.equals("keyPattern")) restored.remove(option);
            former.forEach((option, value) -> {
                if (!BsonBoolean.FALSE.equals(value)) restored.put(option, value);
            });
            known.setValue(restored);
        }
    }

    /** The collections and views that a selection includes. */
    List<Entry> entries(Predicate<String> selection) {
        List<Entry> entries = new ArrayList<>(collections.values());
        entries.addAll(views.values());
        return entries.stream().filter(entry -> selection.test(entry.namespace)).toList();
    }

    Optional<Entry> collection(BsonBinary uuid) {
        return Optional.ofNullable(collections.get(uuid));
    }
}
