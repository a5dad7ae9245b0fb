package io.towpath.support;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import org.bson.BsonDocument;

/** The connectors' definitions that the command line fills in. */
public final class Definitions {
    public static final Path FOLDER = Path.of("../connectors");
    /** What stands in the open places; anything else is x. */
    private static final Map<String, String> VALUES = Map.ofEntries(
            Map.entry("rename", "{}"),
            Map.entry("whole_documents", "false"),
            Map.entry("partitions", "1"),
            Map.entry("replication_factor", "1"),
            Map.entry("tasks", "1"),
            Map.entry("copy", "ranges"),
            Map.entry("copy_tasks", "1"),
            Map.entry("copy_threads", "4"),
            Map.entry("copy_order", "auto"),
            Map.entry("read_preference", "secondaryPreferred"),
            Map.entry("documents_per_second", "0"),
            Map.entry("bytes_per_second", "5000000000"),
            Map.entry("splice_cache", "67108864"),
            Map.entry("write_concern", "majority+journal"),
            Map.entry("wtimeout_ms", "60000"),
            Map.entry("fold", "true"),
            Map.entry("batch_records", "50000"),
            Map.entry("poll_records", "4"),
            Map.entry("batch_bytes", "16777216"),
            Map.entry("until", ""),
            Map.entry("compaction_lag_ms", "-1"),
            Map.entry("delete_retention_ms", "-1"));

    private Definitions() {}

    /** A definition with its open places filled in. */
    public static Map<String, String> filled(String file) {
        try {
            Map<String, String> settings = new HashMap<>();
            BsonDocument.parse(Files.readString(FOLDER.resolve(file)))
                    .forEach((key, value) ->
                            settings.put(key, text(value.asString().getValue())));
            return settings;
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    private static String text(String open) {
        String result = open;
        for (Map.Entry<String, String> value : VALUES.entrySet())
            result = result.replace("%%(%s)s".formatted(value.getKey()), value.getValue());
        return result.replaceAll("%\\(\\w+\\)s", "x");
    }
}
