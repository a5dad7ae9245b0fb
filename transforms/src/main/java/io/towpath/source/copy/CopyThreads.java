package io.towpath.source.copy;

import com.mongodb.MongoException;
import io.towpath.net.ReadFault;
import io.towpath.net.RetryCause;
import io.towpath.record.ClusterTime;
import io.towpath.source.progress.Page;
import io.towpath.source.progress.RangePlan;
import io.towpath.source.progress.RecordIds;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.LinkedBlockingDeque;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/**
 * Threads that divide collections into ranges and read these. The pages of each range wait in order, up to a number of bytes, beyond
 * which reading blocks. When a read breaks off, its range continues where its last page ended, as of a later cluster time (in natural
 * order, as of the same one while the source holds it).
 */
final class CopyThreads implements AutoCloseable {
    /** Of pages that wait for the task, whatever the number of threads. */
    private static final int MOST_WAITING_BYTES = 8 << 20;

    private static final Duration PATIENCE = Duration.ofMinutes(5);
    /** At least for a member that has a collection's record ids. */
    private static final Duration FEWEST_PATIENCE = Duration.ofSeconds(10);

    private static final long FIRST_PAUSE_MS = 200;
    private static final long IDLE_MS = 100;
    private static final long LONGEST_PAUSE_MS = 10_000;

    /** Work for a thread: to divide a collection into ranges, or to read a range. */
    private record Job(String namespace, Work work) {}

    private interface Work {
        void run() throws InterruptedException;
    }

    private final SnapshotReads reads;
    private final String name;
    private final RateLimit limit;
    private final NaturalReads natural;
    private final LinkedBlockingDeque<Job> jobs = new LinkedBlockingDeque<>();
    private final CopyReports reports = new CopyReports(MOST_WAITING_BYTES);
    private final List<Thread> threads = new ArrayList<>();
    private final ClusterTime earliest;
    private volatile boolean isEnding;

    /**
     * @param name of the pipeline
     * @param earliest no read is as of an earlier time
     */
    CopyThreads(SnapshotReads reads, String name, ClusterTime earliest) {
        this.reads = reads;
        this.name = name;
        this.earliest = earliest;
        this.limit = new RateLimit(reads.settings());
        this.natural = new NaturalReads(reads, earliest);
    }

    /** @param isAlone whether this task reads all ranges, whatever its share is */
    void cut(String namespace, boolean isAlone) {
        jobs.addLast(new Job(namespace, () -> divide(namespace, isAlone)));
    }

    void read(RangeRead.Range range) {
        jobs.addLast(job(range));
    }

    private Job job(RangeRead.Range range) {
        return new Job(range.namespace(), () -> readPages(range));
    }

    void start() {
        for (int index = 0; index < reads.settings().threads(); index++) {
            Thread thread = new Thread(this::work, "towpath-copy-%s-%d".formatted(name, index));
            thread.setDaemon(true);
            thread.start();
            threads.add(thread);
        }
    }

    /** Lets each thread report what it does now, and no more. */
    void end() {
        isEnding = true;
    }

    /** Whether every report of a thread that was told to {@link #end} is there. */
    boolean haveEnded() {
        return isEnding && threads.stream().noneMatch(Thread::isAlive);
    }

    /** As {@link CopyReports#next}. */
    CopyReports.Report next(long waitMs) throws InterruptedException {
        return reports.next(waitMs);
    }

    private void work() {
        String namespace = "";
        try {
            while (!isEnding) {
                Job job = jobs.pollFirst(IDLE_MS, TimeUnit.MILLISECONDS);
                if (job == null) continue;
                namespace = job.namespace;
                job.work.run();
            }
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        } catch (Throwable error) { // also an Error: the task would wait for a dead thread forever
            fail(namespace, error);
        }
    }

    private void fail(String namespace, Throwable error) {
        if (error instanceof MongoException fault && ReadFault.isInterrupt(fault)) return;
        try {
            reports.put(new CopyReports.Failed(namespace, error));
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    private void divide(String namespace, boolean isAlone) throws InterruptedException {
        for (Patience patience = new Patience(namespace); !isEnding; ) {
            try {
                RangePlan plan = natural.plan(namespace);
                patience.end();
                reports.put(new CopyReports.Planned(namespace, plan));
                // before the collections that are not divided yet, so that few ranges wait
                for (int range = plan.ranges() - 1; range >= 0; range--) {
                    if (isAlone
                            || plan.recordIds().isPresent()
                            || reads.settings().share().has(namespace, range))
                        jobs.addFirst(job(new RangeRead.Range(namespace, plan, range, RangePlan.OPEN_END)));
                }
                return;
            } catch (MongoException error) {
                patience.afterFault(error);
            }
        }
    }

    private void readPages(RangeRead.Range whole) throws InterruptedException {
        RangeRead.Range rest = whole;
        for (Patience patience = new Patience(whole); !isEnding; ) {
            try (PageRead pages = open(rest)) {
                while (pages.hasNext()) {
                    Page page = pages.next();
                    patience.end();
                    limit.take(page.documents().size(), page.bytes());
                    reports.put(new CopyReports.Copied(page));
                    if (page.isLast() || isEnding) return;
                    rest = new RangeRead.Range(rest.namespace(), rest.plan(), rest.index(), page.upTo());
                    patience = new Patience(rest);
                }
            } catch (OutdatedPlanException outdated) {
                reports.put(new CopyReports.Outdated(rest.namespace(), RetryCause.OTHER, outdated.getMessage()));
                return;
            } catch (MongoException error) {
                if (ReadFault.isInterrupt(error)) throw new InterruptedException();
                RetryCause cause = RetryCause.of(error);
                reports.put(new CopyReports.Retried(rest.namespace(), rest.index(), cause, ReadFault.message(error)));
                if (ReadFault.isAboutTime(error)) natural.timeIsGone(rest.namespace());
                if (ReadFault.isTransient(error) && patience.isOverFor(rest.plan())) {
                    reports.put(new CopyReports.Outdated(rest.namespace(), cause, ReadFault.message(error)));
                    return;
                }
                patience.afterFault(error);
            }
        }
    }

    private PageRead open(RangeRead.Range range) {
        return range.plan().recordIds().isPresent()
                ? natural.read(range, reads.settings().page())
                : new RangeRead(
                        reads,
                        reads.source().snapshot(),
                        range,
                        reads.settings().page(),
                        earliest);
    }

    @Override
    public void close() {
        threads.forEach(Thread::interrupt);
        reports.clear();
        natural.close();
    }

    /** Growing pauses, until an error is not transient or has lasted too long. An outage continues in the next round. */
    private final class Patience {
        /** As in {@link SnapshotReads#outages}. */
        private final String read;

        private final long began;
        private long pauseMs = FIRST_PAUSE_MS;

        /** To divide a collection. */
        Patience(String namespace) {
            this.read = namespace;
            this.began = System.nanoTime() - reads.outages().getOrDefault(namespace, 0L);
        }

        /** To read a range. A member that is away is so for all that is read there, but a plan has as much patience as any other. */
        Patience(RangeRead.Range range) {
            RangePlan plan = range.plan();
            this.read = plan.recordIds().map(RecordIds::member).orElse(range.namespace());
            long outage = reads.outages().getOrDefault(read, 0L);
            this.began = System.nanoTime() - Math.min(outage, age(plan).toNanos());
        }

        private static Duration age(RangePlan plan) {
            return Duration.ofMillis(Math.max(0, System.currentTimeMillis() - plan.beganMs()));
        }

        boolean isOver() {
            return lasted().compareTo(PATIENCE) > 0;
        }

        boolean isOverFor(RangePlan plan) {
            if (plan.recordIds().isEmpty()) return false;
            Duration outage = lasted();
            reads.outages().put(read, outage.toNanos());
            return isTooLong(outage, age(plan));
        }

        private Duration lasted() {
            return Duration.ofNanos(System.nanoTime() - began);
        }

        /** It was read. */
        void end() {
            reads.outages().remove(read);
        }

        void afterFault(MongoException error) throws InterruptedException {
            if (ReadFault.isInterrupt(error)) throw new InterruptedException();
            reads.outages().put(read, lasted().toNanos());
            if (!ReadFault.isTransient(error) || isOver()) throw error;
            Thread.sleep(ThreadLocalRandom.current().nextLong(pauseMs / 2, pauseMs));
            pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
        }
    }

    /**
     * Whether to begin again on another member rather than to wait longer for the one that has the record ids: once the outage has lasted as
     * long as the reading before it, which is what would be lost. So a copy takes at most twice as long as without the outage.
     *
     * @param age since the plan was made
     */
    static boolean isTooLong(Duration outage, Duration age) {
        Duration reading = age.minus(outage);
        return outage.compareTo(PATIENCE) > 0 || outage.compareTo(FEWEST_PATIENCE) > 0 && outage.compareTo(reading) > 0;
    }

    /** Delays the threads that share it so that together they stay below their task's part of a rate. */
    private static final class RateLimit {
        private final double documentsPerSecond;
        private final double bytesPerSecond;
        private long free = System.nanoTime();

        RateLimit(CopySettings settings) {
            int tasks = settings.share().tasks();
            documentsPerSecond = (double) settings.documentsPerSecond() / tasks;
            bytesPerSecond = (double) settings.bytesPerSecond() / tasks;
        }

        /** Waits for the time that earlier calls have used up. */
        void take(long documents, long bytes) throws InterruptedException {
            double seconds = Math.max(
                    documentsPerSecond > 0 ? documents / documentsPerSecond : 0,
                    bytesPerSecond > 0 ? bytes / bytesPerSecond : 0);
            if (seconds == 0) return;
            long wait;
            synchronized (this) {
                long now = System.nanoTime();
                wait = Math.max(0, free - now);
                free = Math.max(free, now) + (long) (seconds * 1e9);
            }
            TimeUnit.NANOSECONDS.sleep(wait);
        }
    }
}
