package io.towpath.source.ddl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.debezium.SourceCluster;
import io.towpath.record.ClusterTime;
import io.towpath.support.Server;
import io.towpath.support.Sources;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.BooleanSupplier;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** What a real source tells of its collections. */
@Tag("server")
@EnabledIfEnvironmentVariable(named = Server.URI, matches = ".+")
class DdlWatchServerTest {
    private final Server server = new Server();
    private SourceCluster source;
    private ClusterTime start;
    private String database;
    private DdlWatch watch;

    @BeforeEach
    void connect() {
        source = Sources.connected(Sources.configuration());
        database = server.fresh("x").getNamespace().getDatabaseName();
        start = source.now();
    }

    @AfterEach
    void close() {
        if (watch != null) watch.close();
        source.close();
        server.close();
    }

    private DdlLog watching() {
        DdlLog log = new DdlLog(null, start);
        watch = new DdlWatch(source, name -> name.startsWith(database + ".ddl"), log, "p");
        return log;
    }

    private List<String> changes(DdlLog log) {
        synchronized (watch) {
            return log.changes().stream()
                    .map(change -> change.kind() + " "
                            + change.namespace().substring(database.length() + 1)
                            + (change.to().isEmpty() ? "" : " " + change.to().substring(database.length() + 1)))
                    .toList();
        }
    }

    private static void await(BooleanSupplier fact) throws InterruptedException {
        long end = System.nanoTime() + 20_000_000_000L;
        while (!fact.getAsBoolean() && System.nanoTime() < end) Thread.sleep(20);
        assertTrue(fact.getAsBoolean());
    }

    @Test
    void everyKindIsSeenAndWhatIsNotTakenInIsNot() throws InterruptedException {
        RawBsonDocument document = RawBsonDocument.parse("{_id: 1, a: 1}");
        server.fresh("ddl1").insertOne(document);
        server.fresh("ddl2").insertOne(document);
        server.fresh("ddl4").insertOne(document);
        server.fresh("other").insertOne(document);
        server.run(
                "{drop: 'other'}",
                "{drop: 'ddl4'}",
                "{collMod: 'ddl1', validator: {a: 1}}",
                "{aggregate: 'ddl1', pipeline: [{$match: {}}, {$out: 'ddl1out'}], cursor: {}}",
                "{dropIndexes: 'ddl1', index: 'a_1'}",
                "{createIndexes: 'ddl1', indexes: [{key: {a: 1}, name: 'a_1'}]}",
                "{create: 'ddl3', capped: true, size: 4096}",
                "{create: 'ddl5'}");
        DdlLog log = watching();
        await(() -> changes(log).contains("drop ddl4"));
        List<String> changes = changes(log);
        assertEquals(
                List.of("create ddl3", "createIndexes ddl1", "dropIndexes ddl1", "modify ddl1", "drop ddl4"),
                changes.stream().filter(change -> !change.startsWith("rename")).toList());
        assertTrue(
                changes.stream().anyMatch(change -> change.startsWith("rename ") && change.endsWith(" ddl1out")),
                "$out");
        assertTrue(watch.dueOffset().isPresent());
        assertTrue(watch.dueOffset().isEmpty());
        server.dropDatabase(database);
        await(() -> changes(log).contains("drop ddl2"));
    }

    @Test
    @Tag("nightly")
    void anErrorIsToldAndTheWatchGoesOn() throws InterruptedException {
        AtomicBoolean fails = new AtomicBoolean(true);
        DdlLog log = new DdlLog(null, start);
        watch = new DdlWatch(
                source,
                name -> {
                    if (fails.get()) throw new NoClassDefFoundError("io/towpath/Gone");
                    return name.startsWith(database + ".ddl");
                },
                log,
                "p");
        server.fresh("ddl1").insertOne(RawBsonDocument.parse("{_id: 1}"));
        server.run("{drop: 'ddl1'}");
        await(() -> problem(log).contains("not watched: java.lang.NoClassDefFoundError: io/towpath/Gone"));
        fails.set(false);
        await(() -> changes(log).contains("drop ddl1") && problem(log).isEmpty());
    }

    private String problem(DdlLog log) {
        synchronized (watch) {
            return (String) log.offset().get("error");
        }
    }

    @Test
    void historyThatIsLostIsToldAndTheRestIsSeen() throws InterruptedException {
        server.requireTestCommands();
        server.fail("{times: 1}", "failCommands: ['aggregate'], errorCode: 286");
        DdlLog log = watching();
        await(() -> {
            synchronized (watch) {
                return log.changes().stream().anyMatch(change -> change.kind().equals(Ddl.UNSEEN));
            }
        });
        server.fresh("ddl9").insertOne(RawBsonDocument.parse("{_id: 1}"));
        server.run("{drop: 'ddl9'}");
        await(() -> {
            synchronized (watch) {
                return log.changes().stream().anyMatch(change -> change.kind().equals("drop"));
            }
        });
    }
}
