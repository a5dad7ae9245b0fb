package io.towpath.debezium;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.MongoException;
import com.mongodb.WriteConcern;
import io.towpath.net.ReadFault;
import io.towpath.record.ClusterTime;
import io.towpath.support.Server;
import io.towpath.support.Sources;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** Reads of a source's oplog that drops its entries. */
@Tag("server")
@EnabledIfEnvironmentVariable(named = Server.URI, matches = ".+")
class OplogServerTest {
    private final Server server = new Server();
    private final SourceCluster source = Sources.connected(Sources.configuration());

    @AfterEach
    void close() {
        server.fail("off", "failCommands: []");
        source.close();
        server.close();
    }

    @Test
    void aFirstEntryThatIsDroppedMeanwhileIsReadAgain() {
        server.requireTestCommands();
        server.fail("{times: 3}", "failCommands: ['find'], namespace: 'local.oplog.rs', errorCode: 136");
        Oplog oplog = Oplog.read(source);
        assertTrue(oplog.first() <= oplog.last());
        server.fail("alwaysOn", "failCommands: ['find'], namespace: 'local.oplog.rs', errorCode: 136");
        assertThrows(MongoException.class, () -> Oplog.read(source));
    }

    @Test
    void onlyAnEntryOfTheSourcesHistoryIsInItsOplog() {
        ClusterTime entry = entry();
        assertFalse(Oplog.isOfOtherHistory(source, entry));
        assertTrue(Oplog.isOfOtherHistory(source, none(entry)));
        ClusterTime later = new ClusterTime(entry.seconds() + 3600, 1);
        MongoException unknown = assertThrows(MongoException.class, () -> Oplog.isOfOtherHistory(source, later));
        assertTrue(ReadFault.isTransient(unknown), unknown::toString);
    }

    @Test
    void aUserWhoMayNotReadTheOplogNeedsNoEntryInIt() {
        server.requireTestCommands();
        ClusterTime none = none(entry());
        server.fail("{times: 1}", "failCommands: ['aggregate'], namespace: 'local.oplog.rs', errorCode: 13");
        assertFalse(Oplog.isOfOtherHistory(source, none));
        server.fail("{times: 1}", "failCommands: ['aggregate'], namespace: 'local.oplog.rs', errorCode: 136");
        assertTrue(Oplog.isOfOtherHistory(source, none), "what the server drops meanwhile is read again");
    }

    /** The time of an entry that a majority has. */
    private ClusterTime entry() {
        ClusterTime entry = source.now();
        server.fresh("oplog").withWriteConcern(WriteConcern.MAJORITY).insertOne(RawBsonDocument.parse("{_id: 1}"));
        return entry;
    }

    /** Entries have ordinals from 1 on. */
    private static ClusterTime none(ClusterTime entry) {
        return new ClusterTime(entry.seconds(), 0);
    }
}
