package io.towpath.debezium;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.MongoException;
import io.towpath.net.ReadFault;
import io.towpath.record.ClusterTime;
import java.util.List;
import java.util.stream.Stream;
import org.bson.BsonDocument;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class OplogTest {
    private static final Oplog FULL = new Oplog(1000, 5000, 0.95, 0, 1, 0);

    @Test
    void aFullOplogReachesBackAsFarAsItDoesNow() {
        assertEquals(4000, FULL.window());
        assertEquals(1000, FULL.left(new ClusterTime(2000, 1)));
        assertEquals(-500, FULL.left(new ClusterTime(500, 1)));
    }

    @Test
    void oneThatIsNotFullWillReachBackFurther() {
        assertEquals(8000, new Oplog(1000, 5000, 0.5, 0, 1, 0).window());
        assertEquals(9000, new Oplog(1000, 5000, 0.5, 9000, 1, 0).window());
        assertEquals(8000, new Oplog(1000, 5000, 0.5, 7000, 1, 0).window());
    }

    @Test
    void captureIsNearTheEndFromHalfOfTheWindowOn() {
        assertFalse(FULL.isNear(new ClusterTime(3000, 1)));
        assertTrue(FULL.isNear(new ClusterTime(2999, 1)));
        assertFalse(new Oplog(1000, 5000, 0.4, 0, 1, 0).isNear(new ClusterTime(1000, 1)));
    }

    /** What is found: the first entry from 100:7 on, and the first of all. */
    @ParameterizedTest
    @CsvSource({
        "false, '{ts: {t: 100, i: 7}, op: \"i\", o: {}}',    '{ts: {t: 90, i: 1}, op: \"n\", o: {msg: \"initiating set\"}}'",
        "false, '{ts: {t: 100, i: 7}, op: \"n\", o: {}}',    '{ts: {t: 100, i: 7}, op: \"n\", o: {}}'",
        "true,  '{ts: {t: 100, i: 8}, op: \"n\", o: {}}',    '{ts: {t: 90, i: 1}, op: \"n\", o: {msg: \"initiating set\"}}'",
        "true,  '{ts: {t: 100, i: 8}, op: \"i\", o: {}}',    '{ts: {t: 100, i: 6}, op: \"i\", o: {}}'",
    })
    void aMajoritysEntryIsInTheOplogOfItsHistory(boolean isOther, String next, String first) {
        assertEquals(isOther, isOfOtherHistory(next, first));
    }

    @Test
    void anOplogThatHasDroppedTheEntryProvesNothing() {
        String first = "{ts: {t: 100, i: 8}, op: 'u', o: {}}";
        assertFalse(isOfOtherHistory(first, first));
        String saysSo = "{ts: {t: 100, i: 8}, op: 'i', o: {msg: 'initiating set'}}";
        assertFalse(isOfOtherHistory(saysSo, saysSo), "a document");
    }

    @Test
    void oneThatBeginsLaterWithTheInitiationOfItsSetHasDroppedNothing() {
        String first = "{ts: {t: 100, i: 8}, op: 'n', o: {msg: 'initiating set'}}";
        assertTrue(isOfOtherHistory(first, first));
    }

    @Test
    void aMemberThatIsBehindTheEntryIsAskedAgain() {
        MongoException error =
                assertThrows(MongoException.class, () -> isOfOtherHistory("{ts: {t: 90, i: 1}, op: 'n', o: {}}"));
        assertTrue(ReadFault.isTransient(error));
    }

    private static boolean isOfOtherHistory(String... found) {
        List<BsonDocument> entries = Stream.of(found)
                .map(entry -> entry.replaceAll("ts: (\\{.*?\\})", "ts: {\\$timestamp: $1}"))
                .map(BsonDocument::parse)
                .toList();
        return Oplog.isOfOtherHistory(entries, new ClusterTime(100, 7));
    }
}
