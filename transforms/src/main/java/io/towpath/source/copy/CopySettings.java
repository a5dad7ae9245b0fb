package io.towpath.source.copy;

import com.mongodb.ReadPreference;
import io.towpath.source.progress.CopyShare;
import java.util.Locale;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Importance;
import org.apache.kafka.common.config.ConfigDef.Range;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.common.config.ConfigDef.ValidString;

/**
 * How collections are copied.
 *
 * @param share of this task
 * @param documentsPerSecond of all tasks together, as {@code bytesPerSecond}; 0 is no limit
 * @param roundMs how long a round lasts; 0: as the oplog allows
 */
public record CopySettings(
        CopyShare share,
        int threads,
        long rangeBytes,
        ReadPreference readPreference,
        long documentsPerSecond,
        long bytesPerSecond,
        Order order,
        long roundMs) {
    /** The order in which a collection is read. */
    enum Order {
        AUTO,
        ID,
        NATURAL
    }

    private static final String THREADS = "towpath.copy.threads";
    private static final String RANGE_BYTES = "towpath.copy.range.bytes";
    private static final String READ_PREFERENCE = "towpath.copy.read.preference";
    private static final String DOCUMENTS_PER_SECOND = "towpath.copy.documents.per.second";
    private static final String BYTES_PER_SECOND = "towpath.copy.bytes.per.second";
    private static final String ORDER = "towpath.copy.order";
    private static final String ROUND_MS = "towpath.copy.round.ms";
    private static final PageRead.Size LARGEST_PAGE = new PageRead.Size(4_000, 1 << 20);
    /** For so long the threads of a task delay one page each, at most: a round ends after them. */
    private static final double LONGEST_DELAY_S = 0.25;

    public static ConfigDef define(ConfigDef definition) {
        return definition
                .defineInternal(CopyShare.TASK, Type.INT, 0, Importance.LOW)
                .defineInternal(CopyShare.TASKS, Type.INT, 1, Importance.LOW)
                .define(
                        THREADS,
                        Type.INT,
                        4,
                        Range.between(1, 64),
                        Importance.MEDIUM,
                        "How many threads of each task read ranges at once.")
                .define(
                        RANGE_BYTES,
                        Type.LONG,
                        16L << 20,
                        Range.atLeast(1),
                        Importance.LOW,
                        "About how many bytes a range holds; a collection has at most 1,024 ranges.")
                .define(
                        READ_PREFERENCE,
                        Type.STRING,
                        "primary",
                        ValidString.in("primary", "primaryPreferred", "secondary", "secondaryPreferred", "nearest"),
                        Importance.MEDIUM,
                        "Which members the copy reads from.")
                .define(
                        DOCUMENTS_PER_SECOND,
                        Type.LONG,
                        0L,
                        Range.atLeast(0),
                        Importance.MEDIUM,
                        "The most documents that all tasks together copy per second; 0: no limit.")
                .define(
                        BYTES_PER_SECOND,
                        Type.LONG,
                        0L,
                        Range.atLeast(0),
                        Importance.MEDIUM,
                        "The most bytes that all tasks together copy per second; 0: no limit.")
                .define(
                        ORDER,
                        Type.STRING,
                        "auto",
                        ValidString.in("auto", "id", "natural"),
                        Importance.LOW,
                        "The order in which collections are read: by _id, in natural order, or (auto) in natural order where _ids are scattered and the source's cache is too small for the collection.")
                .define(
                        ROUND_MS,
                        Type.LONG,
                        0L,
                        Range.atLeast(0),
                        Importance.LOW,
                        "For how many ms rows are read before the stream has to catch up; 0: for an eighth of the time that the source's oplog reaches back.");
    }

    public static CopySettings of(AbstractConfig parsed) {
        return new CopySettings(
                new CopyShare(parsed.getInt(CopyShare.TASK), parsed.getInt(CopyShare.TASKS)),
                parsed.getInt(THREADS),
                parsed.getLong(RANGE_BYTES),
                ReadPreference.valueOf(parsed.getString(READ_PREFERENCE)),
                parsed.getLong(DOCUMENTS_PER_SECOND),
                parsed.getLong(BYTES_PER_SECOND),
                Order.valueOf(parsed.getString(ORDER).toUpperCase(Locale.ROOT)),
                parsed.getLong(ROUND_MS));
    }

    /** Of a page; at a low rate, a small one. */
    PageRead.Size page() {
        double pagesPerSecond = share.tasks() * threads / LONGEST_DELAY_S;
        return new PageRead.Size(
                (int) limited(documentsPerSecond / pagesPerSecond, LARGEST_PAGE.documents()),
                limited(bytesPerSecond / pagesPerSecond, LARGEST_PAGE.bytes()));
    }

    private static long limited(double size, long most) {
        return size == 0 ? most : Math.max(1, Math.min(most, (long) size));
    }
}
