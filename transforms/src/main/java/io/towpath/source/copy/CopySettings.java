package io.towpath.source.copy;

import com.mongodb.ReadPreference;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Importance;
import org.apache.kafka.common.config.ConfigDef.Range;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.common.config.ConfigDef.ValidString;

/** How collections are copied. A rate of 0 is no limit. */
public record CopySettings(
        int threads, long rangeBytes, ReadPreference readPreference, long documentsPerSecond, long bytesPerSecond) {
    private static final String THREADS = "towpath.copy.threads";
    private static final String RANGE_BYTES = "towpath.copy.range.bytes";
    private static final String READ_PREFERENCE = "towpath.copy.read.preference";
    private static final String DOCUMENTS_PER_SECOND = "towpath.copy.documents.per.second";
    private static final String BYTES_PER_SECOND = "towpath.copy.bytes.per.second";

    public static ConfigDef define(ConfigDef definition) {
        return definition
                .define(
                        THREADS,
                        Type.INT,
                        4,
                        Range.between(1, 64),
                        Importance.MEDIUM,
                        "How many threads read ranges at once.")
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
                        "The most documents that are copied per second; 0: no limit.")
                .define(
                        BYTES_PER_SECOND,
                        Type.LONG,
                        0L,
                        Range.atLeast(0),
                        Importance.MEDIUM,
                        "The most bytes that are copied per second; 0: no limit.");
    }

    public static CopySettings of(AbstractConfig parsed) {
        return new CopySettings(
                parsed.getInt(THREADS),
                parsed.getLong(RANGE_BYTES),
                ReadPreference.valueOf(parsed.getString(READ_PREFERENCE)),
                parsed.getLong(DOCUMENTS_PER_SECOND),
                parsed.getLong(BYTES_PER_SECOND));
    }
}
