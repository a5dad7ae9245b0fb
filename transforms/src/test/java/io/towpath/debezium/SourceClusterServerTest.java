package io.towpath.debezium;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.Collation;
import com.mongodb.client.model.CreateCollectionOptions;
import com.mongodb.client.model.CreateViewOptions;
import io.towpath.support.Server;
import io.towpath.support.Sources;
import java.util.List;
import java.util.function.Predicate;
import org.apache.kafka.connect.errors.ConnectException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** Which collections of a real source can be copied. */
@Tag("server")
@EnabledIfEnvironmentVariable(named = Server.URI, matches = ".+")
class SourceClusterServerTest {
    private static final Collation ENGLISH = Collation.builder().locale("en").build();

    private final Server server = new Server();
    private final String name = "collations_" + ProcessHandle.current().pid();
    private final SourceCluster source = Sources.connected(Sources.configuration());
    private final Predicate<String> all = namespace -> namespace.startsWith(name + ".");

    @BeforeEach
    void create() {
        MongoDatabase database = server.client().getDatabase(name);
        database.createCollection("plain");
        Collation simple = Collation.builder().locale("simple").build();
        database.createCollection("simple", new CreateCollectionOptions().collation(simple));
        database.createCollection("english", new CreateCollectionOptions().collation(ENGLISH));
        database.createView("view", "plain", List.of(), new CreateViewOptions().collation(ENGLISH));
    }

    @AfterEach
    void close() {
        server.dropDatabase(name);
        source.close();
        server.close();
    }

    @Test
    void aCollectionWhoseIdsDoNotCompareByTheirBytesCannotBeCopied() {
        ConnectException refused = assertThrows(ConnectException.class, () -> source.comparableNamespaces(all));
        assertTrue(
                refused.getMessage().startsWith("TWP-COLLATION: " + name + ".english cannot be captured: "),
                refused.getMessage());
        assertTrue(refused.getMessage().contains("(en)"), refused.getMessage());
    }

    @Test
    void oneThatIsNotSelectedAndAViewAreNotAskedFor() {
        Predicate<String> others = all.and(namespace -> !namespace.endsWith(".english"));
        assertEquals(List.of(name + ".plain", name + ".simple"), sorted(source.comparableNamespaces(others)));
        assertEquals(List.of(name + ".english", name + ".plain", name + ".simple"), sorted(source.namespaces(all)));
    }

    @Test
    void theOrderOfIdsIsThatOfTheirBytesWithoutACollationOnly() {
        assertTrue(source.hasSimpleCollation(name + ".plain"));
        assertTrue(source.hasSimpleCollation(name + ".simple"));
        assertFalse(source.hasSimpleCollation(name + ".english"));
    }

    private static List<String> sorted(List<String> namespaces) {
        return namespaces.stream().sorted().toList();
    }
}
