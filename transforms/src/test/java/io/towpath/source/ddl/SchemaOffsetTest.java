package io.towpath.source.ddl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.record.ClusterTime;
import io.towpath.record.JsonArrays;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.Test;

class SchemaOffsetTest {
    private final SchemaOffset state = new SchemaOffset(null);

    private static ClusterTime at(long seconds) {
        return new ClusterTime(seconds, 1);
    }

    @Test
    void itIsStoredAndReadAgain() {
        state.begin();
        state.passed(at(7));
        state.passed(at(5));
        state.views().addAll(List.of("db.v", "db.\"w\""));
        state.report("some problem");
        state.openRefill("db.a", "3:1/0/db.b", at(3));
        state.openRefill("db.b", "4:1/0/db.b", at(4));
        assertTrue(state.closeRefills("db.a", at(5)));
        assertFalse(state.closeRefills("db.a", at(6)));

        SchemaOffset read = new SchemaOffset(state.offset());

        assertEquals(state.offset(), read.offset());
        assertTrue(read.isOn());
        assertEquals(Optional.of(at(7)), read.upto());
        assertEquals(
                List.of("db.b"),
                read.openRefills().stream().map(SchemaOffset.Refill::namespace).toList());
        assertEquals(
                "[{\"namespace\": \"db.a\", \"id\": \"3:1/0/db.b\", \"from\": \"3:1\", \"to\": \"5:1\"}, "
                        + "{\"namespace\": \"db.b\", \"id\": \"4:1/0/db.b\", \"from\": \"4:1\"}]",
                read.offset().get("refills"));
    }

    @Test
    void refillsThatAreOpenAreNotForgotten() {
        state.openRefill("db.first", "1:1/0/db.first", at(1));
        for (int n = 0; n < 2 * SchemaOffset.MOST_REFILLS; n++) {
            state.openRefill("db.a", "%d:1/0/db.a".formatted(n), at(n));
            state.closeRefills("db.a", at(n + 1));
        }
        SchemaOffset read = new SchemaOffset(state.offset());
        assertEquals(
                List.of("db.first"),
                read.openRefills().stream().map(SchemaOffset.Refill::namespace).toList());
        int count = read.offset().get("refills").toString().split("from").length - 1;
        assertEquals(SchemaOffset.MOST_REFILLS, count);
    }

    /** The schema changes of `$out`, each complete one second later; there are ten seconds between them. */
    private void replace(String namespace, int from, int times) {
        for (int n = from; n < from + times; n++) {
            state.openRefill(namespace, "%d:1/0/%s".formatted(10 * n, namespace), at(10 * n));
            state.closeRefills(namespace, at(10 * n + 1));
        }
    }

    private List<String> stored() {
        String text = (String) new SchemaOffset(state.offset()).offset().get("refills");
        return JsonArrays.parse(text).stream()
                .map(refill -> refill.asDocument().toJson())
                .toList();
    }

    @Test
    void noTimeOfAnIncompleteCollectionIsForgotten() {
        replace("db.once", 1, 1);
        replace("db.report", 2, SchemaOffset.MOST_REFILLS + 1);
        List<String> stored = stored();
        assertEquals(SchemaOffset.MOST_REFILLS, stored.size());
        assertEquals(
                "{\"namespace\": \"db.once\", \"id\": \"10:1/0/db.once\", \"from\": \"10:1\", \"to\": \"11:1\"}",
                stored.get(0));
        assertEquals(
                "{\"namespace\": \"db.report\", \"id\": \"40:1/0/db.report\", \"from\": \"20:1\", \"to\": \"41:1\", \"changes\": 3}",
                stored.get(1));
        assertEquals(
                "{\"namespace\": \"db.report\", \"id\": \"50:1/0/db.report\", \"from\": \"50:1\", \"to\": \"51:1\"}",
                stored.get(2));
    }

    @Test
    void whereEachCollectionIsAnotherTheOldestAreJoined() {
        for (int n = 1; n <= SchemaOffset.MOST_REFILLS + 2; n++) replace("db.c" + n, n, 1);
        List<String> stored = stored();
        assertEquals(SchemaOffset.MOST_REFILLS, stored.size());
        assertEquals(
                "{\"namespace\": \"\", \"id\": \"30:1/0/db.c3\", \"from\": \"10:1\", \"to\": \"31:1\", \"changes\": 3}",
                stored.get(0));
    }

    @Test
    void whatIsOffKeepsItsRefillsAlone() {
        state.begin();
        state.passed(at(7));
        state.views().add("db.v");
        state.openRefill("db.a", "3:1/0/db.b", at(3));
        state.end();
        SchemaOffset read = new SchemaOffset(state.offset());
        assertFalse(read.isOn());
        assertEquals(Optional.empty(), read.upto());
        assertEquals(1, read.openRefills().size());
        assertTrue(read.views().isEmpty());
    }
}
