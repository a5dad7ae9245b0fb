package io.towpath.sink.ddl;

import com.mongodb.MongoException;
import com.mongodb.MongoNamespace;
import com.mongodb.client.MongoClient;
import io.towpath.record.SchemaChange;
import io.towpath.record.SchemaChange.Kind;
import io.towpath.sink.ddl.Step.Progress;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Predicate;
import java.util.function.Supplier;
import java.util.stream.Collectors;

/**
 * The schema changes at which partitions of a task wait. The task that has the first partition that waits at a change makes it, in a
 * separate thread, as an index can take hours; what is stored at the destination tells the other tasks.
 */
public final class SchemaChanges implements AutoCloseable {
    /** Changes of one kind that a task makes at the same time. */
    private static final int THREADS = 16;

    private static final int IDLE_S = 10;
    private static final int PATIENCE_S = 2;
    private static final long AGAIN_NS = Duration.ofSeconds(30).toNanos();
    /** While someone waits for it, unless an attempt takes longer. */
    private static final long SOON_NS = Duration.ofSeconds(1).toNanos();

    /**
     * What a sink's settings say about schema changes.
     *
     * @param drops whether collections are dropped without a decision
     * @param replayed whether the sink writes a topic of the log to a new destination
     * @param topics whether the sink reads a topic
     * @param renamed a namespace at the source to its name at the destination
     */
    public record Settings(
            boolean drops, Predicate<String> replayed, Predicate<String> topics, Map<String, MongoNamespace> renamed) {
        /** Whether the sink writes the log of what a change is about to a new destination. */
        public boolean replays(SchemaChange change) {
            return change.partitions().keySet().stream().anyMatch(replayed);
        }
    }

    private final String pipeline;
    private final Settings settings;
    private final String database;
    private final Supplier<MongoClient> connect;
    private final Predicate<RuntimeException> isTransient;
    private final ThreadPoolExecutor instant;
    /** Separate: these may take hours, and nothing else waits for them. */
    private final ThreadPoolExecutor builds;

    private final Map<String, Attempt> attempts = new ConcurrentHashMap<>();
    private final AtomicLong made = new AtomicLong();
    private MongoClient client;
    private volatile boolean closed;
    /** Since the last check, an attempt has ended. */
    private volatile boolean ended;

    private int waiting;
    private int refused;

    /** @param againNs when it may be made again, after it was refused */
    private record Attempt(boolean isRunning, boolean wasDecided, long againNs) {}

    /**
     * @param database where Towpath keeps its own state at the destination
     * @param connect connects to the destination for commands that take long
     * @param isTransient whether an error of the server passes automatically
     */
    public SchemaChanges(
            String pipeline,
            int task,
            Settings settings,
            String database,
            Supplier<MongoClient> connect,
            Predicate<RuntimeException> isTransient) {
        this.pipeline = pipeline;
        this.settings = settings;
        this.database = database;
        this.connect = connect;
        this.isTransient = isTransient;
        this.instant = threads("towpath-schema-%s-%d".formatted(pipeline, task));
        this.builds = threads("towpath-schema-builds-%s-%d".formatted(pipeline, task));
    }

    private static ThreadPoolExecutor threads(String name) {
        ThreadPoolExecutor threads =
                new ThreadPoolExecutor(THREADS, THREADS, IDLE_S, TimeUnit.SECONDS, new LinkedBlockingQueue<>(), run -> {
                    Thread thread = new Thread(run, name);
                    thread.setDaemon(true);
                    return thread;
                });
        threads.allowCoreThreadTimeOut(true);
        return threads;
    }

    /** Which topics of a change this sink reads. */
    public Set<String> topics(SchemaChange change) {
        Set<String> topics = new HashSet<>(change.partitions().keySet());
        topics.removeIf(topic -> !settings.topics.test(topic));
        return topics.isEmpty() ? change.partitions().keySet() : topics;
    }

    /** Whether {@link #check} has something new to see. */
    public boolean hasNews() {
        return ended;
    }

    /** Whether this task makes a change at this moment. */
    public boolean isMaking() {
        return attempts.values().stream().anyMatch(Attempt::isRunning);
    }

    /** How many changes partitions of this task waited for at the last check, apart from those refused. */
    public int waiting() {
        return waiting;
    }

    /** How many of these the destination refuses. */
    public int refused() {
        return refused;
    }

    /** How many changes this task has made. */
    public long made() {
        return made.get();
    }

    /**
     * Notes arrivals, and makes what this task has to make, or leaves it out when that was decided. Returns how the changes are that are
     * over: whether they were made. Throws the driver's exceptions.
     *
     * @param tasks a client of the task's own
     */
    public Map<String, Boolean> check(MongoClient tasks, Collection<Arrival> arrivals) {
        ended = false;
        waiting = 0;
        refused = 0;
        Set<String> ids = arrivals.stream().map(Arrival::id).collect(Collectors.toSet());
        attempts.entrySet().removeIf(attempt -> !attempt.getValue().isRunning && !ids.contains(attempt.getKey()));
        if (ids.isEmpty()) return Map.of();
        ChangeStore store = new ChangeStore(pipeline, tasks, database);
        Map<String, Progress> stored = store.find(ids);
        Map<String, Boolean> over = new HashMap<>();
        for (Arrival arrival : arrivals) {
            Progress progress = stored.get(arrival.id());
            boolean isNew = progress == null || progress.state() == State.WAITING;
            if (isNew && (progress == null || arrival.arrived() > progress.arrived())) {
                SchemaChange change = Plan.asRead(
                        arrival.barrier().change(), topics(arrival.barrier().change()));
                String namespace =
                        new Names(settings.renamed).of(change.namespace()).getFullName();
                store.arrived(arrival.barrier(), namespace, arrival.arrived(), arrival.expected());
                if (progress == null)
                    progress = store.find(Set.of(arrival.id())).get(arrival.id());
            }
            boolean makes = arrival.makes() != null && arrival.allStand();
            switch (Step.after(progress, makes)) {
                case PASS -> over.put(arrival.id(), progress.state() == State.DONE);
                case SKIP -> {
                    if (store.move(arrival.id(), Making.UNDECIDED, State.SKIPPED, progress.reason()))
                        over.put(arrival.id(), false);
                }
                case MAKE -> make(arrival, progress);
                case WAIT -> {
                    // for other partitions, another task, or a decision
                }
            }
            if (over.containsKey(arrival.id())) continue;
            if (progress != null && progress.isRefused()) refused++;
            else waiting++;
        }
        return over;
    }

    private void make(Arrival arrival, Progress progress) {
        Attempt last = attempts.get(arrival.id());
        boolean isDecided = progress.decision() == Step.Decision.APPLY;
        if (last != null && last.isRunning) return;
        boolean isDue = last == null || System.nanoTime() - last.againNs >= 0 || isDecided && !last.wasDecided;
        boolean isStuck = progress.state() == State.REFUSED || progress.state() == State.HELD;
        if (isStuck && !isDue) return;
        attempts.put(arrival.id(), new Attempt(true, isDecided, 0));
        SchemaChange change = arrival.barrier().change();
        boolean mayBuild = change.kind() == Kind.CREATE_INDEXES || change.isSnapshot();
        (mayBuild ? builds : instant).execute(() -> {
            long began = System.nanoTime();
            try {
                ChangeStore store = new ChangeStore(pipeline, client(), database);
                Making making =
                        new Making(store, client(), settings, arrival, topics(change), isTransient, () -> closed);
                if (!making.run()) return;
                made.incrementAndGet();
                store.prune();
            } catch (MongoException | IllegalStateException error) {
                // the task was closed, or the next check tries again
            } finally {
                long now = System.nanoTime();
                Attempt attempt = new Attempt(false, isDecided, now + pauseNs(isDecided, now - began));
                attempts.computeIfPresent(arrival.id(), (unused, running) -> attempt);
                ended = true;
            }
        });
    }

    /** When a refused change is tried again: soon, if someone has said that it is to be made, and may still be fixing it. */
    private static long pauseNs(boolean isDecided, long tookNs) {
        return isDecided ? Math.max(SOON_NS, Math.min(tookNs, AGAIN_NS)) : AGAIN_NS;
    }

    private synchronized MongoClient client() {
        if (closed) throw new IllegalStateException("the task has ended");
        if (client == null) client = connect.get();
        return client;
    }

    /** Ends what is being made: its next owner continues it. */
    @Override
    public void close() {
        closed = true;
        instant.shutdownNow();
        builds.shutdownNow();
        synchronized (this) {
            if (client != null) client.close();
        }
        try {
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
            instant.awaitTermination(PATIENCE_S, TimeUnit.SECONDS);
            builds.awaitTermination(end - System.nanoTime(), TimeUnit.NANOSECONDS);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }
}
