package io.towpath.source.ddl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.debezium.SourceCluster;
import io.towpath.record.SchemaChange;
import io.towpath.source.progress.CopyShare;
import io.towpath.source.progress.Ledger;
import io.towpath.source.progress.Partitions;
import io.towpath.source.progress.Progress;
import io.towpath.source.progress.SourceMetrics;
import io.towpath.source.rules.Rules;
import io.towpath.support.Server;
import io.towpath.support.SourceContext;
import io.towpath.support.Sources;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.source.SourceRecord;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** Errors of a real source while its schema changes are read. */
@Tag("server")
@EnabledIfEnvironmentVariable(named = Server.URI, matches = ".+")
class SchemaErrorsServerTest {
    private final Server server = new Server();
    private final String database = server.fresh("x").getNamespace().getDatabaseName();
    private final SourceCluster source = Sources.connected(Sources.configuration());
    private final SourceContext context = new SourceContext(Map.of());
    private final SourceMetrics metrics = new SourceMetrics("p-source", "p", "p", new CopyShare(0, 1));
    private SchemaCapture changes;

    @BeforeEach
    void begin() throws InterruptedException {
        server.requireTestCommands();
        Partitions partitions = new Partitions("p");
        Ledger ledger = new Ledger(partitions, context);
        ledger.begin("", source.now(), List.of());
        ledger.beginStream();
        Progress progress = new Progress("p", partitions, ledger, metrics, Rules.NONE);
        TopicPartitions topics = new TopicPartitions("p", Map.of(), Optional.empty());
        changes = new SchemaCapture(source, name -> name.startsWith(database + ".s"), topics, progress, context);
        Optional<List<SourceRecord>> begun = Optional.empty();
        while (begun.isEmpty()) begun = changes.beginStream(ledger.start());
        context.store(begun.get());
        assertTrue(changes.readUpTo(source.now()));
    }

    @AfterEach
    void close() {
        server.fail("off", "");
        changes.close();
        source.close();
        metrics.close();
        server.close();
    }

    @Test
    void aCursorThatEndsIsOpenedAgainAndNothingComesTwice() throws InterruptedException {
        server.fresh("s1").insertOne(RawBsonDocument.parse("{_id: 1}"));
        assertTrue(changes.readUpTo(source.now()));
        server.fresh("s2").insertOne(RawBsonDocument.parse("{_id: 1}"));
        server.fail("{times: 1}", "failCommands: ['getMore'], errorCode: 237");
        assertFalse(changes.readUpTo(source.now()));
        while (!changes.readUpTo(source.now())) {}
        List<String> namespaces = changes.take(source.now()).stream()
                .filter(record -> record.topic().startsWith("p."))
                .map(record -> SchemaChange.decode((byte[]) record.key(), (byte[]) record.value())
                        .namespace())
                .toList();
        assertEquals(List.of(database + ".s1", database + ".s2"), namespaces);
    }

    @Test
    void historyThatIsLostStopsTheTask() {
        server.fresh("s1").insertOne(RawBsonDocument.parse("{_id: 1}"));
        server.fail("alwaysOn", "failCommands: ['getMore', 'aggregate'], errorCode: 286");
        ConnectException error = assertThrows(ConnectException.class, () -> changes.readUpTo(source.now()));
        assertTrue(error.getMessage().startsWith("TWP-HISTORY-LOST: "), error::getMessage);
    }

    @Test
    void aCopyThatBeganWithoutSchemaChangesGoesOn() throws InterruptedException {
        Partitions partitions = new Partitions("q");
        SourceContext offsets = new SourceContext(Map.of());
        Ledger before = new Ledger(partitions, offsets);
        before.begin("", source.now(), List.of(database + ".s1"));
        offsets.store(List.of(before.rootRecord()));
        server.fresh("s1").insertOne(RawBsonDocument.parse("{_id: 1}"));
        server.fresh("s2").insertOne(RawBsonDocument.parse("{_id: 1}"));
        server.fresh("s2").drop();
        Ledger ledger = new Ledger(partitions, offsets);
        TopicPartitions topics = new TopicPartitions("q", Map.of(), Optional.empty());
        Progress progress = new Progress("q", partitions, ledger, metrics, Rules.NONE);
        try (SchemaCapture capture =
                new SchemaCapture(source, name -> name.startsWith(database + ".s"), topics, progress, offsets)) {
            assertEquals(Optional.of(List.of()), capture.beginCopy());
        }
        assertEquals(before.start(), ledger.start());
    }

    @Test
    void historyThatIsThereAfterAllIsRead() throws InterruptedException {
        server.fresh("s1").insertOne(RawBsonDocument.parse("{_id: 1}"));
        server.fail("{times: 1}", "failCommands: ['getMore', 'aggregate'], errorCode: 286");
        assertFalse(changes.readUpTo(source.now()));
        while (!changes.readUpTo(source.now())) {}
        assertEquals(
                1,
                changes.take(source.now()).stream()
                        .filter(record -> record.topic().startsWith("p."))
                        .count());
    }

    @Test
    void anErrorThatStaysStopsTheTask() {
        server.fresh("s1").insertOne(RawBsonDocument.parse("{_id: 1}"));
        server.fail("alwaysOn", "failCommands: ['getMore', 'aggregate'], errorCode: 13");
        ConnectException error = assertThrows(ConnectException.class, () -> changes.readUpTo(source.now()));
        assertTrue(error.getMessage().contains("schema changes cannot be read at the source"), error::getMessage);
    }
}
