package io.towpath.support;

import io.towpath.connector.KeyPartitioner;
import io.towpath.debezium.CursorPipeline;
import io.towpath.debezium.RawDocuments;
import io.towpath.debezium.SourceCluster;
import io.towpath.source.MongoSource;
import io.towpath.source.copy.CopySettings;
import io.towpath.source.copy.SnapshotReads;
import io.towpath.source.rules.Rules;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.converters.ByteArrayConverter;

/** Settings by which tests connect to the server as a source. */
public final class Sources {
    private Sources() {}

    public static Map<String, String> configuration() {
        Map<String, String> configuration = new HashMap<>(Map.of(
                "connector.class",
                MongoSource.class.getName(),
                "topic.prefix",
                "p",
                "towpath.name",
                "p",
                "mongodb.connection.string",
                Server.uri(),
                "mongodb.authentication.class",
                RawDocuments.class.getName(),
                "cursor.pipeline",
                CursorPipeline.PIPELINE,
                "exactly.once.support",
                "required",
                "key.converter",
                ByteArrayConverter.class.getName(),
                "value.converter",
                ByteArrayConverter.class.getName(),
                "header.converter",
                ByteArrayConverter.class.getName()));
        configuration.put("producer.override.partitioner.class", KeyPartitioner.class.getName());
        return configuration;
    }

    /** Reads by the default settings. */
    public static SnapshotReads reads(SourceCluster source) {
        return reads(source, Map.of());
    }

    public static SnapshotReads reads(SourceCluster source, Map<String, String> settings) {
        return reads(source, settings, Rules.NONE);
    }

    public static SnapshotReads reads(SourceCluster source, Map<String, String> settings, Rules rules) {
        ConfigDef definition = CopySettings.define(new ConfigDef());
        return new SnapshotReads(source, CopySettings.of(new AbstractConfig(definition, settings)), rules);
    }

    public static SourceCluster connected(Map<String, String> configuration) {
        return new SourceCluster(configuration, configuration.get("towpath.name"));
    }
}
