package io.towpath.sink.ddl;

import com.mongodb.MongoCommandException;
import com.mongodb.MongoException;
import com.mongodb.MongoNamespace;
import com.mongodb.client.MongoClient;
import io.towpath.net.ServerError;
import io.towpath.record.SchemaChange;
import io.towpath.record.SchemaChange.Kind;
import io.towpath.sink.ddl.Step.Decision;
import io.towpath.sink.ddl.Step.Noted;
import io.towpath.sink.ddl.Step.Progress;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.BooleanSupplier;
import java.util.function.Predicate;
import org.bson.BsonBinary;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Makes one schema change at the destination, again as long as its server has a problem that may pass. It may be done by two tasks at once, and again
 * after a crash: it plans with what it finds, and each command names the collection that it is meant for.
 */
final class Making {
    /** What a change may be left out from. */
    static final Set<State> UNDECIDED = EnumSet.of(State.WAITING, State.HELD, State.REFUSED);

    private static final Set<State> OPEN = EnumSet.complementOf(EnumSet.copyOf(State.OVER));
    private static final Logger LOG = LoggerFactory.getLogger(Making.class);
    private static final long SHORTEST_MS = 50;
    /** Other changes wait for the thread: after this pause, the next check makes another attempt. */
    private static final long LONGEST_MS = 3_200;
    /** After so many plans for what the destination is no longer like, it is something else that it does not take. */
    private static final int MOST_OUTDATED = 5;
    /** The first version in which commands name the collection that they are meant for. */
    private static final int FENCES = 6;

    private final ChangeStore store;
    private final MongoClient client;
    private final SchemaChanges.Settings settings;
    private final Arrival arrival;
    private final Predicate<RuntimeException> isTransient;
    private final BooleanSupplier isClosed;
    private final SchemaChange change;
    private final Names names;

    Making(
            ChangeStore store,
            MongoClient client,
            SchemaChanges.Settings settings,
            Arrival arrival,
            Set<String> topics,
            Predicate<RuntimeException> isTransient,
            BooleanSupplier isClosed) {
        this.store = store;
        this.client = client;
        this.settings = settings;
        this.arrival = arrival;
        this.isTransient = isTransient;
        this.isClosed = isClosed;
        this.change = Plan.asRead(arrival.barrier().change(), topics);
        this.names = new Names(settings.renamed());
    }

    /** Returns whether the change is made now. It is not when it is held or refused, or when another task has to make it. */
    boolean run() {
        String problem = "";
        String known = "";
        int outdated = 0;
        for (long pauseMs = SHORTEST_MS; pauseMs <= LONGEST_MS && !isClosed.getAsBoolean(); pauseMs *= 2) {
            try {
                Progress progress = store.find(Set.of(change.id())).get(change.id());
                boolean isOver = progress == null || State.OVER.contains(progress.state());
                if (isOver || !isStillOurs()) return false;
                if (!problem.isEmpty() && progress.decision() == Decision.SKIP) {
                    store.move(change.id(), OPEN, State.SKIPPED, problem);
                    return false;
                }
                known = progress.reason();
                if (!problem.equals(known) && !problem.isEmpty()) store.note(change.id(), progress.state(), problem);
                Outcome outcome = attempt(progress);
                if (outcome != Outcome.AGAIN) return outcome == Outcome.MADE;
            } catch (MongoException error) {
                if (isClosed.getAsBoolean()) return false;
                boolean mayPass = isTransient.test(error) || isOutdated(error) && ++outdated < MOST_OUTDATED;
                if (!mayPass) return refuse(words(error), null) == Outcome.MADE;
                if (problem.isEmpty() && !words(error).equals(known))
                    LOG.warn("cannot make schema change {}, retrying: {}", change.id(), words(error));
                problem = words(error);
            } catch (RuntimeException error) {
                if (isClosed.getAsBoolean()) return false;
                LOG.error("schema change {}", change.id(), error);
                return refuse(error.toString(), null) == Outcome.MADE;
            }
            if (!slept(pauseMs)) return false;
        }
        return false;
    }

    private enum Outcome {
        MADE,
        NOT_MADE,
        /** The destination is not as it was found. */
        AGAIN
    }

    private Outcome attempt(Progress progress) {
        MongoNamespace namespace = names.of(change.namespace());
        boolean isRename = change.kind() == Kind.RENAME;
        Described present;
        Described target;
        try {
            present = Described.of(client, namespace);
            target = isRename ? Described.of(client, names.of(change.to())) : null;
        } catch (MongoException error) {
            if (!ServerError.Unauthorized.is(error)) throw error;
            return forbidden(error);
        }
        boolean drops = settings.drops() || settings.replays(change) || progress.decision() == Decision.APPLY;
        Plan.Situation now =
                new Plan.Situation(change, names, present, target, progress.noted(), drops, settings.replays(change));
        Plan plan = Plan.of(now);
        if (plan instanceof Plan.Held) {
            store.move(
                    change.id(),
                    OPEN,
                    State.HELD,
                    "it drops a collection with about %d documents"
                            .formatted(client.getDatabase(namespace.getDatabaseName())
                                    .getCollection(namespace.getCollectionName())
                                    .estimatedDocumentCount()));
            return Outcome.NOT_MADE;
        }
        if (plan instanceof Plan.Refused refused) return refuse(refused.reason(), refused.fix());
        List<Command> commands = ((Plan.Commands) plan).commands();
        boolean isBegun = progress.noted() != null && progress.state() == State.RUNNING;
        if (!commands.isEmpty() && !isBegun) {
            Noted met = progress.noted() == null ? new Noted(uuid(present), uuid(target)) : null;
            if (!store.begin(change.id(), progress.state(), met)) return Outcome.AGAIN;
        }
        for (Command command : commands) {
            if (!isStillOurs()) return Outcome.NOT_MADE;
            try {
                send(command);
            } catch (MongoException error) {
                if (ServerError.Unauthorized.is(error)) return forbidden(error);
                if (isTransient.test(error) || isOutdated(error)) throw error;
                Command fix = Plan.fixIndexes(now);
                return fix != null
                        ? refuse(words(error), fix)
                        : refuse("%s; the command was: %s".formatted(words(error), command.shell()), null);
            }
        }
        if (!store.move(change.id(), OPEN, State.DONE, "")) return Outcome.NOT_MADE;
        return Outcome.MADE;
    }

    private static BsonBinary uuid(Described described) {
        return described == null ? null : described.uuid();
    }

    private boolean isStillOurs() {
        return arrival.makes().test(client);
    }

    private void send(Command command) {
        boolean knowsFences = command.fence() != null && version() >= FENCES;
        BsonDocument answer =
                client.getDatabase(command.database()).runCommand(command.sent(knowsFences), BsonDocument.class);
        if (answer.containsKey("writeConcernError"))
            throw new MongoException("a majority does not have it yet: " + answer.get("writeConcernError"));
    }

    private int version() {
        return client.getDatabase("admin")
                .runCommand(new BsonDocument("buildInfo", new BsonInt32(1)), BsonDocument.class)
                .getArray("versionArray")
                .get(0)
                .asNumber()
                .intValue();
    }

    private Outcome refuse(String reason, Command fix) {
        String words = fix == null ? reason : "%s; to fix it: %s".formatted(reason, fix.shell());
        State state = change.isSnapshot() ? State.SKIPPED : State.REFUSED;
        store.move(change.id(), OPEN, state, words);
        return Outcome.NOT_MADE;
    }

    /** The sink's user may not make the change. Someone has to grant it that; also what describes an existing collection waits. */
    private Outcome forbidden(MongoException error) {
        Set<String> databases =
                new TreeSet<>(Set.of(names.of(change.namespace()).getDatabaseName()));
        if (change.kind() == Kind.RENAME) databases.add(names.of(change.to()).getDatabaseName());
        String words = "%s; to fix it, grant the sink's user the roles readWrite and dbAdmin on %s"
                .formatted(words(error), String.join(" and ", databases));
        store.move(change.id(), OPEN, State.REFUSED, words);
        return Outcome.NOT_MADE;
    }

    /** Whether the destination has changed since the plan was made. */
    private boolean isOutdated(MongoException error) {
        boolean isGone = change.kind() != Kind.MODIFY && change.kind() != Kind.CREATE_INDEXES;
        return ServerError.CollectionUUIDMismatch.is(error)
                || ServerError.NamespaceExists.is(error)
                || isGone && ServerError.NamespaceNotFound.is(error)
                || change.kind() == Kind.DROP_INDEXES && ServerError.IndexNotFound.is(error);
    }

    private static String words(MongoException error) {
        return error instanceof MongoCommandException answer
                ? "%s (%s, code %d)"
                        .formatted(answer.getErrorMessage(), answer.getErrorCodeName(), answer.getErrorCode())
                : String.valueOf(error.getMessage());
    }

    private static boolean slept(long ms) {
        try {
            Thread.sleep(ms);
            return true;
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            return false;
        }
    }
}
