package io.towpath.debezium;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Map;
import java.util.function.Predicate;
import org.junit.jupiter.api.Test;

class SelectionTest {
    @Test
    void theDatabasesOfTheServerAndOfTowpathAreNeverCaptured() {
        Predicate<String> all = SourceCluster.selection(Map.of(
                "mongodb.connection.string",
                "mongodb://none.example/",
                "collection.include.list",
                ".*",
                "topic.prefix",
                "p"));
        for (String database : new String[] {"admin", "config", "local", "towpath"})
            assertFalse(all.test(database + ".offsets"), database);
        assertTrue(all.test("towpaths.offsets"));
        assertTrue(all.test("shop.towpath.offsets"));
    }
}
