package io.towpath.source.copy;

import com.mongodb.MongoException;
import io.towpath.net.ReadFault;
import io.towpath.record.ClusterTime;
import io.towpath.source.ddl.SchemaCapture;
import io.towpath.source.progress.CollectionCopy;
import io.towpath.source.progress.Progress;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Copies collections that were added to a running pipeline, a page at a time, as of the stream's position.
 *
 * @param schema null unless schema changes are captured; not closed by this
 */
public record AddedCopy(Progress progress, SnapshotReads reads, SchemaCapture schema) {
    /** Of one page. */
    private static final PageRead.Size MOST = new PageRead.Size(Integer.MAX_VALUE, 8 << 20);

    /**
     * The next plan or page; empty when there is none. Throws the driver's exceptions. A collection that the source does not hold as of that
     * time, as it is replaced again and again, holds up no other one.
     */
    public List<SourceRecord> next(ClusterTime time) throws InterruptedException {
        MongoException unavailable = null;
        for (Map.Entry<String, Optional<CollectionCopy>> entry :
                progress.ledger().rows().copies().entrySet()) {
            String namespace = entry.getKey();
            Optional<CollectionCopy> copy = entry.getValue();
            if (copy.isPresent() && copy.get().isDone()) continue;
            try {
                return copy.isPresent()
                        ? page(namespace, copy.get(), time)
                        : List.of(progress.ledger().plan(namespace, reads.plan(namespace)));
            } catch (MongoException error) {
                if (!ReadFault.isAboutTime(error)) throw error;
                if (ReadFault.isOfACapped(error) && willStay(namespace)) return schema.endCopy(namespace, time);
                unavailable = error;
            }
        }
        if (unavailable != null) throw unavailable;
        return List.of();
    }

    /** Whether no schema change is to come that takes the collection. */
    private boolean willStay(String namespace) throws InterruptedException {
        return schema != null && schema.mayBeGone(namespace).equals(Optional.of(false));
    }

    private List<SourceRecord> page(String namespace, CollectionCopy copy, ClusterTime time) {
        int index = copy.firstOpen();
        RangeRead.Range range = new RangeRead.Range(
                namespace, copy.plan(), index, copy.range(index).after());
        try (RangeRead pages = new RangeRead(reads, reads.source().snapshot(time), range, MOST, time)) {
            return Rows.copy(pages.next(), progress);
        }
    }
}
