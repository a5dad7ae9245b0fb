package io.towpath.sink.ddl;

import com.mongodb.MongoNamespace;
import io.towpath.record.SchemaChange;
import io.towpath.record.SchemaChange.Kind;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.bson.BsonArray;
import org.bson.BsonBinary;
import org.bson.BsonDocument;
import org.bson.BsonString;
import org.bson.BsonValue;

/**
 * What a schema change needs at a destination that is as it was found. A plan is made again before each attempt, also where a task before
 * has made some of it; when nothing is left, the change is made.
 */
sealed interface Plan {
    /** These commands, in this order; none when nothing is left. */
    record Commands(List<Command> commands) implements Plan {}

    /** It would drop a collection, and no one has said that it may. */
    record Held() implements Plan {}

    /**
     * The destination has something else.
     *
     * @param fix null when no command does
     */
    record Refused(String reason, Command fix) implements Plan {}

    /**
     * A change and what the destination has.
     *
     * @param change as this sink reads it: without a topic of which it reads nothing
     * @param present of its namespace; null when there is none
     * @param target of its new name; null when there is none, or it has no new name
     * @param noted what it met when it was begun; null when it was not
     * @param drops whether it may drop a collection
     * @param replays whether the log is written to a new destination: rows follow a rename, and the old ones may include deleted ones
     */
    record Situation(
            SchemaChange change,
            Names names,
            Described present,
            Described target,
            Step.Noted noted,
            boolean drops,
            boolean replays) {
        private MongoNamespace namespace() {
            return names.of(change.namespace());
        }

        private MongoNamespace to() {
            return names.of(change.to());
        }

        private BsonDocument options() {
            if (change.isView()) return names.view(change.options(), change.namespace());
            return isUnordered() ? Relaxed.withoutCollation(change.options()) : change.options();
        }

        /** Of the topic with the documents of the collection, under its new name if it has one. */
        private int partitions() {
            return change.topic(change.kind() == Kind.RENAME ? change.to() : change.namespace())
                    .map(topic -> change.partitions().get(topic))
                    .orElse(1);
        }

        /** Whether nothing keeps the order of documents whose {@code _id}s are equal by the source's default collation. */
        private boolean isUnordered() {
            return !change.isView() && Relaxed.collation(change.options()) != null && partitions() > 1;
        }

        /** Whether it is a view and should be a collection, or the reverse. */
        private boolean isOfOtherKind() {
            return present != null && present.isView() != change.isView();
        }

        /** Whether the collection is the one that the change met when it was begun. */
        private boolean isStillThere(Described described, BsonBinary metUuid) {
            return described != null && (noted == null || described.is(metUuid));
        }
    }

    static Plan of(Situation now) {
        return switch (now.change.kind()) {
            case CREATE -> create(now);
            case CREATE_INDEXES -> createIndexes(now);
            case DROP_INDEXES -> dropIndexes(now);
            case MODIFY -> modify(now);
            case RENAME -> rename(now);
            case DROP -> drop(now);
            case REPLACE -> replace(now);
            case COMPLETE -> new Commands(List.of());
        };
    }

    /**
     * Why a collection cannot be created; null when it can. Partitions are applied at their own speeds, so a default collation, by which
     * different {@code _id}s are equal, would mix up documents: a late delete of one would hit the other. Where there are several
     * partitions, someone has to create it with the simple collation first.
     *
     * @param name the destination's
     * @param there what the destination has of this name; null when there is none
     */
    private static Refused unordered(Situation now, MongoNamespace name, Described there) {
        if (!now.isUnordered()) return null;
        boolean isSimple = there == null
                ? now.noted != null // it was dropped since
                : !there.isView() && Relaxed.collation(there.options()) == null;
        if (isSimple) return null;
        return new Refused(
                "TWP-COLLATION: by its default collation (%s) different _ids are equal, and %d partitions do not keep the order of their documents: the destination can only have it with the simple collation"
                        .formatted(
                                Relaxed.collation(now.change.options())
                                        .getString("locale")
                                        .getValue(),
                                now.partitions()),
                there == null ? Command.create(name, Relaxed.options(now.options())) : Command.drop(name, null));
    }

    private static Plan create(Situation now) {
        if (now.change.options().containsKey("timeseries") || isOfBuckets(now.change))
            return new Refused(
                    "it is a time series collection, which is not replicated; `towpath ddl PIPELINE --skip %s` continues without it"
                            .formatted(now.change.namespace()),
                    null);
        if (now.isOfOtherKind()) return otherKind(now.namespace(), now.present);
        Refused unordered = unordered(now, now.namespace(), now.present);
        if (unordered != null) return unordered;
        if (now.present == null) return new Commands(created(now, now.namespace()));
        List<String> unlike = Relaxed.unlike(now.options(), now.present.options());
        if (!unlike.isEmpty())
            return new Refused(
                    "it exists at the destination with another %s".formatted(String.join(", ", unlike)),
                    fix(now, unlike));
        return new Commands(missingIndexes(now.change, now.namespace(), now.present));
    }

    private static Refused otherKind(MongoNamespace namespace, Described present) {
        return new Refused(
                "%s is a %s at the destination"
                        .formatted(namespace.getFullName(), present.isView() ? "view" : "collection"),
                Command.drop(namespace, null));
    }

    private static boolean isOfBuckets(SchemaChange change) {
        BsonValue viewOn = change.options().get("viewOn");
        return change.isView()
                && viewOn != null
                && viewOn.isString()
                && viewOn.asString().getValue().startsWith("system.buckets.");
    }

    /** A command that changes these options of what exists, or else drops it, to be created again. */
    private static Command fix(Situation now, List<String> unlike) {
        BsonDocument options = now.options();
        BsonDocument arguments = new BsonDocument();
        if (now.change.isView() && !unlike.contains("collation")) {
            arguments
                    .append("viewOn", options.get("viewOn"))
                    .append("pipeline", options.get("pipeline", new BsonArray()));
        } else if (unlike.stream().allMatch(option -> Relaxed.standard(option) != null)) {
            BsonDocument relaxed = Relaxed.options(options);
            unlike.forEach(option -> arguments.append(option, relaxed.get(option, Relaxed.standard(option))));
        }
        return arguments.isEmpty()
                ? Command.drop(now.namespace(), null)
                : Command.modify(now.namespace(), arguments, null);
    }

    private static List<Command> created(Situation now, MongoNamespace namespace) {
        List<Command> commands = new ArrayList<>();
        BsonDocument options = now.options();
        commands.add(Command.create(namespace, now.change.isView() ? options : Relaxed.options(options)));
        if (!now.change.indexes().isEmpty())
            commands.add(Command.createIndexes(namespace, Described.relaxed(now.change.indexes()), null));
        return commands;
    }

    private static List<Command> missingIndexes(SchemaChange change, MongoNamespace namespace, Described present) {
        BsonArray missing = present.missing(change.indexes());
        return missing.isEmpty() ? List.of() : List.of(Command.createIndexes(namespace, missing, present.uuid()));
    }

    private static Plan createIndexes(Situation now) {
        if (now.isOfOtherKind()) return otherKind(now.namespace(), now.present);
        if (now.present != null) return new Commands(missingIndexes(now.change, now.namespace(), now.present));
        BsonArray indexes = Described.relaxed(now.change.indexes());
        return new Commands(
                indexes.isEmpty() ? List.of() : List.of(Command.createIndexes(now.namespace(), indexes, null)));
    }

    private static Plan dropIndexes(Situation now) {
        BsonArray names = now.present == null ? new BsonArray() : now.present.present(now.change.indexes());
        return new Commands(
                names.isEmpty() ? List.of() : List.of(Command.dropIndexes(now.namespace(), names, now.present.uuid())));
    }

    private static Plan modify(Situation now) {
        BsonDocument present = now.present == null ? new BsonDocument() : now.present.options();
        BsonDocument arguments = now.change.isView() ? now.options() : Relaxed.modification(now.options(), present);
        // of a collection that was gone when the source described it, the indexes are unknown
        if (now.present != null && arguments.isDocument("index") && !now.present.has(arguments.getDocument("index")))
            arguments.remove("index");
        if (arguments.isEmpty()) return new Commands(List.of());
        if (now.present == null)
            return new Refused(
                    "it does not exist at the destination",
                    Command.create(now.namespace(), now.change.isView() ? arguments : new BsonDocument()));
        if (now.isOfOtherKind()) return otherKind(now.namespace(), now.present);
        return new Commands(List.of(Command.modify(now.namespace(), arguments, now.present.uuid())));
    }

    private static Plan drop(Situation now) {
        if (now.present == null) return new Commands(List.of());
        if (now.present.isView()) return new Commands(List.of(Command.drop(now.namespace(), null)));
        if (now.change.isView()) return new Commands(List.of()); // it was left out when the view was created
        if (!now.isStillThere(now.present, now.noted == null ? null : now.noted.from())) return new Commands(List.of());
        if (!now.drops) return new Held();
        return new Commands(List.of(Command.drop(now.namespace(), now.present.uuid())));
    }

    private static Plan replace(Situation now) {
        Refused unordered = unordered(now, now.namespace(), now.present);
        if (unordered != null) return unordered;
        return new Commands(replace(now, now.namespace(), now.present, now.noted == null ? null : now.noted.from()));
    }

    /** The collection is dropped, unless it was when the change was begun, and is created again. Rows follow. */
    private static List<Command> replace(
            Situation now, MongoNamespace namespace, Described present, BsonBinary metUuid) {
        List<Command> commands = new ArrayList<>();
        if (present == null) return created(now, namespace);
        if (!present.isView() && !now.isStillThere(present, metUuid))
            return missingIndexes(now.change, namespace, present);
        commands.add(Command.drop(namespace, present.uuid()));
        commands.addAll(created(now, namespace));
        return commands;
    }

    private static Plan rename(Situation now) {
        boolean isInPlace = !now.replays
                && now.namespace().getDatabaseName().equals(now.to().getDatabaseName());
        boolean isThere = now.present != null
                && !now.present.isView()
                && now.isStillThere(now.present, now.noted == null ? null : now.noted.from());
        if (isInPlace && isThere && now.target != null && now.target.isView()) return otherKind(now.to(), now.target);
        if (isInPlace && isThere)
            return new Commands(List.of(Command.rename(now.namespace(), now.to(), now.present.uuid())));
        boolean isRenamed = isInPlace && now.noted != null && now.target != null && now.target.is(now.noted.from());
        if (isRenamed) return new Commands(List.of());
        Refused unordered = unordered(now, now.to(), now.target);
        if (unordered != null) return unordered;
        List<Command> commands =
                new ArrayList<>(replace(now, now.to(), now.target, now.noted == null ? null : now.noted.to()));
        if (isThere) commands.add(Command.drop(now.namespace(), now.present.uuid()));
        return new Commands(commands);
    }

    /** A change as a sink sees it that reads only some of its topics: of a rename, only that one name is gone, or has another collection. */
    static SchemaChange asRead(SchemaChange change, Set<String> topics) {
        boolean readsFrom =
                change.topic(change.namespace()).filter(topics::contains).isPresent();
        boolean readsTo = change.topic(change.to()).filter(topics::contains).isPresent();
        if (change.kind() != Kind.RENAME || readsFrom && readsTo) return change;
        return new SchemaChange(
                change.id(),
                readsFrom ? Kind.DROP : Kind.REPLACE,
                readsFrom ? change.namespace() : change.to(),
                "",
                change.isView(),
                change.options(),
                change.indexes(),
                change.isSnapshot(),
                change.partitions());
    }

    /** What is in the way of indexes that the destination refuses; null when nothing is. */
    static Command fixIndexes(Situation now) {
        boolean isAboutIndexes = now.change.kind() == Kind.CREATE_INDEXES || now.change.isSnapshot();
        if (now.present == null || !isAboutIndexes) return null;
        List<BsonDocument> missing = new ArrayList<>();
        now.present.missing(now.change.indexes()).forEach(index -> missing.add(index.asDocument()));
        List<BsonString> names = now.present.inTheWayOf(missing);
        return names.isEmpty() ? null : Command.dropIndexes(now.namespace(), new BsonArray(names), null);
    }
}
