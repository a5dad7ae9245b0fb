package io.towpath.source.ddl;

import io.towpath.debezium.SourceCluster;
import io.towpath.record.ClusterTime;
import io.towpath.record.SchemaChange;
import io.towpath.record.SchemaChange.Kind;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Optional;
import java.util.TreeSet;
import java.util.function.Predicate;
import org.bson.BsonBoolean;
import org.bson.BsonDocument;

/** What the source's events mean for the namespaces that the connector captures. */
final class ChangePlanner {
    private static final BsonDocument NO_OPTIONS = new BsonDocument();
    /** Options of capped collections. */
    private static final List<String> LIMITS = List.of("capped", "size", "max");

    /** A collection as it was when it was renamed; empty options where it no longer exists, as another change of it follows then. */
    private record Description(BsonDocument options, List<BsonDocument> indexes) {
        boolean isCapped() {
            return options.containsKey("capped");
        }
    }

    private final SourceCluster source;
    private final Predicate<String> selection;
    private final TopicPartitions partitions;
    private final SchemaStream stream;
    /** The selected views that exist after everything that is planned. */
    private final TreeSet<String> views;

    private int catalogs;

    /** @param views the selected views that exist before */
    ChangePlanner(
            SourceCluster source,
            Predicate<String> selection,
            TopicPartitions partitions,
            SchemaStream stream,
            Collection<String> views) {
        this.source = source;
        this.selection = selection;
        this.partitions = partitions;
        this.stream = stream;
        this.views = new TreeSet<>(views);
    }

    /**
     * Takes the first event of the stream, and adds what the log gets of it, if anything. Returns false when it has to be called again.
     * Throws the driver's exceptions, and {@link org.apache.kafka.connect.errors.RetriableException}.
     */
    boolean next(Collection<PlannedChange> into) throws InterruptedException {
        SchemaEvent event = stream.events().element();
        Optional<PlannedChange> planned;
        if (event.is(SchemaEvent.RENAME) && selection.test(event.to())) {
            Optional<Description> description = describe(event);
            if (description.isEmpty()) return false;
            planned = Optional.of(renamed(event, description.get()));
        } else {
            planned = plan(event);
        }
        stream.events().remove();
        planned.ifPresent(into::add);
        return true;
    }

    /** Empty when it has to be called again. */
    private Optional<Description> describe(SchemaEvent rename) throws InterruptedException {
        ClusterTime before = source.now();
        Catalog catalog = Catalog.read(
                source, SchemaEvent.database(rename.to()), rename.uuid().orElseThrow());
        if (!stream.readUpTo(source.now())) return Optional.empty();
        if (stream.hasRenamesSince(before) && ++catalogs < Catalog.MOST_READS) return Optional.empty();
        catalogs = 0;
        return Optional.of(catalog.before(stream.events().stream().skip(1).toList())
                .collection(rename.uuid().get())
                .map(entry -> new Description(entry.options(), entry.indexes()))
                .orElse(new Description(NO_OPTIONS, List.of())));
    }

    private PlannedChange renamed(SchemaEvent event, Description now) throws InterruptedException {
        if (event.isConversion()) {
            // the documents stay, and the destination's collection is not capped
            BsonDocument limits = new BsonDocument("capped", BsonBoolean.TRUE);
            LIMITS.stream().filter(now.options::containsKey).forEach(name -> limits.put(name, now.options.get(name)));
            return planned(event, List.of(change(event, Kind.MODIFY, event.to(), "", limits, List.of())), List.of());
        }
        boolean wasSelected = selection.test(event.namespace());
        SchemaChange change = wasSelected
                ? change(event, Kind.RENAME, event.namespace(), event.to(), now.options, now.indexes)
                : change(event, Kind.REPLACE, event.to(), "", now.options, now.indexes);
        List<String> gone = wasSelected ? List.of(event.namespace(), event.to()) : List.of(event.to());
        if (!now.isCapped()) return planned(event, List.of(change), gone, Optional.of(event.to()), "");
        return planned(event, List.of(change), gone, Optional.empty(), cappedProblem(event.to()));
    }

    /** What users should know of a capped collection whose rows would have to follow. */
    static String cappedProblem(String namespace) {
        return "%s is capped, and no server reads a capped collection as of a known time: the log does not have the documents that it had before"
                .formatted(namespace);
    }

    private Optional<PlannedChange> plan(SchemaEvent event) throws InterruptedException {
        if (event.is(SchemaEvent.DROP_DATABASE)) return dropDatabase(event);
        if (!selection.test(event.namespace())) return Optional.empty();
        return switch (event.kind()) {
            case SchemaEvent.CREATE -> create(event);
            case SchemaEvent.CREATE_INDEXES -> Optional.of(
                    plain(event, Kind.CREATE_INDEXES, NO_OPTIONS, event.indexes()));
            case SchemaEvent.DROP_INDEXES -> Optional.of(plain(event, Kind.DROP_INDEXES, NO_OPTIONS, event.indexes()));
            case SchemaEvent.MODIFY -> modify(event);
            default -> Optional.of(drop(event)); // or renamed to something that is not selected
        };
    }

    private Optional<PlannedChange> create(SchemaEvent event) throws InterruptedException {
        BsonDocument options = event.description().clone();
        options.remove("idIndex");
        if (options.containsKey("temp")) return Optional.empty();
        if (isView(event)) views.add(event.namespace());
        return Optional.of(plain(event, Kind.CREATE, options, List.of()));
    }

    /** A view that was never described was dropped since. */
    private Optional<PlannedChange> modify(SchemaEvent event) throws InterruptedException {
        if (isView(event) && !views.contains(event.namespace())) return Optional.empty();
        return Optional.of(plain(event, Kind.MODIFY, event.description(), List.of()));
    }

    private PlannedChange plain(SchemaEvent event, Kind kind, BsonDocument options, List<BsonDocument> indexes)
            throws InterruptedException {
        return planned(event, List.of(change(event, kind, event.namespace(), "", options, indexes)), List.of());
    }

    private PlannedChange drop(SchemaEvent event) throws InterruptedException {
        views.remove(event.namespace());
        SchemaChange change = change(event, Kind.DROP, event.namespace(), "", NO_OPTIONS, List.of());
        return planned(event, List.of(change), isView(event) ? List.of() : List.of(event.namespace()));
    }

    /** Its collections were dropped one by one; its views were not. */
    private Optional<PlannedChange> dropDatabase(SchemaEvent event) throws InterruptedException {
        List<String> gone = views.stream()
                .filter(view -> SchemaEvent.database(view).equals(event.namespace()))
                .toList();
        List<SchemaChange> drops = new ArrayList<>();
        for (String view : gone) drops.add(change(event, Kind.DROP, view, "", NO_OPTIONS, List.of()));
        gone.forEach(views::remove);
        return drops.isEmpty() ? Optional.empty() : Optional.of(planned(event, drops, List.of()));
    }

    private static boolean isView(SchemaEvent event) {
        return event.uuid().isEmpty();
    }

    private PlannedChange planned(SchemaEvent event, List<SchemaChange> changes, List<String> gone) {
        return planned(event, changes, gone, Optional.empty(), "");
    }

    private PlannedChange planned(
            SchemaEvent event,
            List<SchemaChange> changes,
            List<String> gone,
            Optional<String> refilled,
            String problem) {
        return new PlannedChange(event.time(), event.atMs(), changes, gone, refilled, List.copyOf(views), problem);
    }

    private SchemaChange change(
            SchemaEvent event, Kind kind, String namespace, String to, BsonDocument options, List<BsonDocument> indexes)
            throws InterruptedException {
        String id = "%s/%d/%s".formatted(event.time(), event.number(), namespace);
        return new SchemaChange(
                id, kind, namespace, to, isView(event), options, indexes, false, partitions.of(namespace, to));
    }
}
