package io.towpath.source;

import io.towpath.support.Server;
import java.util.HashMap;
import java.util.Map;

/** Settings by which tests connect to the server as a source. */
final class Sources {
    private Sources() {}

    static Map<String, String> configuration() {
        return new HashMap<>(Map.of(
                "connector.class",
                MongoSource.class.getName(),
                "topic.prefix",
                "p",
                "towpath.name",
                "p",
                "mongodb.connection.string",
                System.getenv(Server.URI),
                "mongodb.authentication.class",
                RawDocuments.class.getName(),
                "cursor.pipeline",
                ChangeCarrier.PIPELINE));
    }

    static SourceCluster connected(Map<String, String> configuration) {
        return new SourceCluster(configuration, SourceSettings.of(configuration));
    }
}
