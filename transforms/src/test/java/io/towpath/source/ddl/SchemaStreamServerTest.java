package io.towpath.source.ddl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.client.ClientSession;
import io.towpath.debezium.SourceCluster;
import io.towpath.record.ClusterTime;
import io.towpath.support.Server;
import io.towpath.support.Sources;
import java.util.ArrayList;
import java.util.List;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** Reads a real server's schema changes on demand. */
@Tag("server")
@EnabledIfEnvironmentVariable(named = Server.URI, matches = ".+")
class SchemaStreamServerTest {
    private final Server server = new Server();
    private final String database = server.fresh("x").getNamespace().getDatabaseName();
    private final SourceCluster source = Sources.connected(Sources.configuration());
    private final ClusterTime start = source.now();
    private final SchemaStream stream =
            new SchemaStream(source, start, event -> event.namespace().startsWith(database + ".s"));

    @AfterEach
    void close() {
        stream.close();
        source.close();
        server.close();
    }

    private List<String> names() {
        List<String> names = new ArrayList<>();
        stream.events()
                .forEach(event -> names.add(event.number() + event.namespace().substring(database.length())));
        return names;
    }

    private void createTwo() {
        try (ClientSession session = server.session()) {
            session.startTransaction();
            for (String name : List.of("s1", "other", "s2"))
                server.client().getDatabase(database).createCollection(session, name);
            session.commitTransaction();
        }
    }

    @Test
    void aTimeIsReadAtOnceWithAllThatShareIt() throws InterruptedException {
        createTwo();
        ClusterTime now = source.now();
        long began = System.nanoTime();
        while (!stream.readUpTo(now)) {}
        assertTrue(System.nanoTime() - began < 3_000_000_000L, "it does not wait for later events");
        assertEquals(List.of("0.s1", "2.s2"), names());
        assertTrue(stream.readUpTo(start), "nothing to do");
    }

    @Test
    void anotherCursorBringsNothingAgain() throws InterruptedException {
        for (int round = 0; round < 3; round++) {
            server.fresh("s1");
            server.fresh("s2");
            server.fresh("other");
            createTwo();
            while (!stream.readUpTo(source.now())) {}
            stream.reset();
        }
        assertEquals(5, names().stream().filter(name -> name.endsWith("s1")).count(), names()::toString);
        server.fresh("s3").insertOne(RawBsonDocument.parse("{_id: 1}"));
        while (!stream.readUpTo(source.now())) {}
        assertEquals("0.s3", names().get(names().size() - 1));
    }
}
