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
 */
public record CopySettings(
        CopyShare share,
        int threads,
        long rangeBytes,
        ReadPreference readPreference,
        long documentsPerSecond,
        long bytesPerSecond,
        Order order) {
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
                        "The order in which collections are read: by _id, in natural order, or (auto) in natural order where _ids are scattered and the source's cache is too small for the collection.");
    }

    public static CopySettings of(AbstractConfig parsed) {
        return new CopySettings(
                new CopyShare(parsed.getInt(CopyShare.TASK), parsed.getInt(CopyShare.TASKS)),
                parsed.getInt(THREADS),
                parsed.getLong(RANGE_BYTES),
                ReadPreference.valueOf(parsed.getString(READ_PREFERENCE)),
                parsed.getLong(DOCUMENTS_PER_SECOND),
                parsed.getLong(BYTES_PER_SECOND),
                Order.valueOf(parsed.getString(ORDER).toUpperCase(Locale.ROOT)));
    }
}
