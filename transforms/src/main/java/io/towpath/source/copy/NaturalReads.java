package io.towpath.source.copy;

import com.mongodb.MongoException;
import com.mongodb.MongoInterruptedException;
import com.mongodb.MongoTimeoutException;
import com.mongodb.ReadPreference;
import io.towpath.connector.Closing;
import io.towpath.debezium.SourceCluster;
import io.towpath.record.ClusterTime;
import io.towpath.source.progress.RangePlan;
import io.towpath.source.progress.RecordIds;
import java.util.HashMap;
import java.util.Map;

/** What the threads of a copy share to read collections in natural order: connections to single members, and the cluster times of the reads. */
final class NaturalReads implements AutoCloseable {
    /** The part of the server's snapshot window in which reads begin; the rest is for those that have begun. */
    private static final double SAFE = 0.8;

    private final SnapshotReads reads;
    /** Where the round begins. */
    private final ClusterTime earliest;
    /** By host and port. */
    private final Map<String, SourceCluster> members = new HashMap<>();

    private final Map<String, ClusterTime> times = new HashMap<>();
    private double safeSeconds = -1;
    private boolean closed;

    /** @param earliest no read is as of an earlier time */
    NaturalReads(SnapshotReads reads, ClusterTime earliest) {
        this.reads = reads;
        this.earliest = earliest;
    }

    /** How to divide a collection: by record ids where it is scattered, else by its {@code _id}s. With a filter: always by these. */
    RangePlan plan(String namespace) {
        if (reads.settings().order() == CopySettings.Order.ID
                || reads.rules().only(namespace).isPresent()) return reads.plan(namespace);
        return PhysicalTable.of(reads.source(), namespace, reads.settings().readPreference())
                .map(table -> RecordIdCutter.plan(reads, namespace, table, member(table.member())))
                .orElseGet(() -> reads.plan(namespace));
    }

    /**
     * Reads a range of record ids. Throws {@link OutdatedPlanException} when the member's record ids are not those of the plan, as well as the
     * driver's exceptions.
     */
    PageRead read(RangeRead.Range range, PageRead.Size size) {
        RecordIds planned = range.plan().recordIds().orElseThrow();
        SourceCluster member = member(planned.member());
        try {
            NaturalRead pages = new NaturalRead(member, range, time(range.namespace(), planned), size);
            try {
                // after the read has begun: a cursor ends with the table that it is of
                requireTable(member, range.namespace(), planned);
                return pages;
            } catch (RuntimeException error) {
                pages.close();
                throw error;
            }
        } catch (MongoTimeoutException unreachable) {
            throw unreachable;
        } catch (MongoException error) {
            requireTable(member, range.namespace(), planned);
            throw error;
        }
    }

    private static void requireTable(SourceCluster member, String namespace, RecordIds planned) {
        if (PhysicalTable.of(member, namespace, ReadPreference.nearest())
                .filter(table -> table.isOf(planned))
                .isEmpty())
            throw new OutdatedPlanException("%s is no longer in %s of %s, to which its record ids belong"
                    .formatted(namespace, planned.table(), planned.member()));
    }

    /** Throws {@link MongoInterruptedException} once this is closed: a thread that still runs would open a client for good. */
    private synchronized SourceCluster member(String address) {
        if (closed) throw new MongoInterruptedException("the copy has ended", new InterruptedException());
        return members.computeIfAbsent(address, reads.source()::at);
    }

    /** One time for all ranges of a collection in a round, as long as the source surely holds it. */
    private synchronized ClusterTime time(String namespace, RecordIds planned) {
        if (safeSeconds < 0) safeSeconds = SAFE * reads.source().snapshotWindowSeconds();
        ClusterTime now = reads.source().now(earliest);
        ClusterTime time = times.getOrDefault(namespace, planned.time());
        if (earliest.isAfter(time) || now.seconds() - time.seconds() > safeSeconds) time = now;
        times.put(namespace, time);
        return time;
    }

    /** The source does not hold its state of the present cluster time of a collection. */
    synchronized void timeIsGone(String namespace) {
        if (times.containsKey(namespace)) times.put(namespace, reads.source().now(earliest));
    }

    @Override
    public synchronized void close() {
        closed = true;
        Closing.all(members.values().toArray(AutoCloseable[]::new));
    }
}
