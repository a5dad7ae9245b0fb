package io.towpath.source.copy;

import io.towpath.record.ClusterTime;
import io.towpath.source.progress.CollectionCopy;
import io.towpath.source.progress.Progress;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.connect.source.SourceRecord;

/** Copies collections that were added to a running pipeline, a page at a time, as of the stream's position. */
public record AddedCopy(Progress progress, SnapshotReads reads) {
    /** Of one page. */
    private static final long MOST_BYTES = 8 << 20;

    /** The next plan or page; empty when there is none. Throws the driver's exceptions. */
    public List<SourceRecord> next(ClusterTime time) {
        for (Map.Entry<String, Optional<CollectionCopy>> entry :
                progress.ledger().rows().copies().entrySet()) {
            String namespace = entry.getKey();
            Optional<CollectionCopy> copy = entry.getValue();
            if (copy.isEmpty()) return List.of(progress.ledger().plan(namespace, reads.plan(namespace)));
            if (!copy.get().isDone()) return page(namespace, copy.get(), time);
        }
        return List.of();
    }

    private List<SourceRecord> page(String namespace, CollectionCopy copy, ClusterTime time) {
        int index = copy.firstOpen();
        RangeRead.Range range = new RangeRead.Range(
                namespace, copy.plan(), index, copy.range(index).after());
        try (RangeRead pages = new RangeRead(reads, reads.source().snapshot(time), range, MOST_BYTES)) {
            return Rows.copy(pages.next(), progress);
        }
    }
}
