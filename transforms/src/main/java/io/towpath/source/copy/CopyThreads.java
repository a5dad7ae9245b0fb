package io.towpath.source;

import com.mongodb.MongoException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.LinkedBlockingDeque;
import java.util.concurrent.ThreadLocalRandom;

/**
 * Threads that cut collections into ranges and read these. What they find waits in order for each range, up to a number of bytes;
 * what exceeds it stops the reading. A range goes on where its last page ended, at a later moment, when a read breaks off.
 */
final class CopyThreads implements AutoCloseable {
    /** Of pages that wait for the task, whatever the number of threads. */
    private static final long MOST_WAITING_BYTES = 32 << 20;

    private static final Duration PATIENCE = Duration.ofMinutes(5);
    private static final long FIRST_PAUSE_MS = 200;
    private static final long LONGEST_PAUSE_MS = 10_000;

    /** Work for a thread: to cut a collection into ranges, or to read a range. */
    private sealed interface Job {}

    private record Cut(String namespace) implements Job {}

    private record Read(String namespace, RangePlan plan, int range, byte[] after) implements Job {}

    private final SourceCluster source;
    private final SourceSettings settings;
    private final RateLimit limit;
    private final LinkedBlockingDeque<Job> jobs = new LinkedBlockingDeque<>();
    private final CopySteps steps = new CopySteps(MOST_WAITING_BYTES);
    private final List<Thread> threads = new ArrayList<>();

    CopyThreads(SourceCluster source, SourceSettings settings) {
        this.source = source;
        this.settings = settings;
        this.limit = new RateLimit(settings.documentsPerSecond(), settings.bytesPerSecond());
    }

    void cut(String namespace) {
        jobs.addLast(new Cut(namespace));
    }

    void read(String namespace, RangePlan plan, int range, byte[] after) {
        jobs.addLast(new Read(namespace, plan, range, after));
    }

    void start() {
        for (int index = 0; index < settings.threads(); index++) {
            Thread thread = new Thread(this::work, "towpath-copy-%s-%d".formatted(settings.name(), index));
            thread.setDaemon(true);
            thread.start();
            threads.add(thread);
        }
    }

    /** The next step, or null when there is none within the time. */
    CopyStep next(long waitMs) throws InterruptedException {
        return steps.next(waitMs);
    }

    private void work() {
        String namespace = "";
        try {
            while (true) {
                Job job = jobs.takeFirst();
                if (job instanceof Cut cut) {
                    namespace = cut.namespace;
                    cut(cut);
                } else if (job instanceof Read read) {
                    namespace = read.namespace;
                    read(read);
                }
            }
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        } catch (Throwable error) { // an Error too: a thread that is gone would be waited for for ever
            fail(namespace, error);
        }
    }

    private void fail(String namespace, Throwable error) {
        if (error instanceof MongoException fault && ReadFault.isInterrupt(fault)) return;
        try {
            steps.put(new CopyStep.Failed(namespace, error));
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    private void cut(Cut job) throws InterruptedException {
        for (Patience patience = new Patience(); ; ) {
            try {
                RangePlan plan = RangeCutter.plan(source.collection(job.namespace), settings.rangeBytes());
                steps.put(new CopyStep.Planned(job.namespace, plan));
                // before the collections that are not cut yet, so that few ranges wait
                for (int range = plan.ranges() - 1; range >= 0; range--) {
                    jobs.addFirst(new Read(job.namespace, plan, range, Piece.END));
                }
                return;
            } catch (MongoException error) {
                patience.afterFault(error);
            }
        }
    }

    private void read(Read job) throws InterruptedException {
        byte[] after = job.after;
        for (Patience patience = new Patience(); ; ) {
            try (RangeRead pages = new RangeRead(
                    source, source.snapshot(), job.namespace, job.range, job.plan, after, RangeRead.PAGE_BYTES)) {
                while (pages.hasNext()) {
                    Page page = pages.next();
                    limit.take(page.documents().size(), page.bytes());
                    steps.put(page);
                    if (page.isLast()) return;
                    after = page.lastKey();
                    patience = new Patience();
                }
            } catch (MongoException error) {
                if (ReadFault.isInterrupt(error)) throw new InterruptedException();
                steps.put(new CopyStep.Trouble(job.namespace, job.range, ReadFault.words(error)));
                patience.afterFault(error);
            }
        }
    }

    @Override
    public void close() {
        threads.forEach(Thread::interrupt);
        steps.clear();
    }

    /** Pauses that grow, until the fault does not pass or has lasted too long. */
    private static final class Patience {
        private final long end = System.nanoTime() + PATIENCE.toNanos();
        private long pauseMs = FIRST_PAUSE_MS;

        void afterFault(MongoException error) throws InterruptedException {
            if (ReadFault.isInterrupt(error)) throw new InterruptedException();
            if (!ReadFault.passes(error) || System.nanoTime() > end) throw error;
            Thread.sleep(ThreadLocalRandom.current().nextLong(pauseMs / 2, pauseMs));
            pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
        }
    }
}
