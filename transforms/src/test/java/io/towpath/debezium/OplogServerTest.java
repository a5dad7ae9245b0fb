package io.towpath.debezium;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.MongoException;
import io.towpath.support.Server;
import io.towpath.support.Sources;
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
}
