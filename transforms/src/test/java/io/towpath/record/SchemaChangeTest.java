package io.towpath.record;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.record.SchemaChange.Kind;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.bson.BsonDocument;
import org.junit.jupiter.api.Test;

class SchemaChangeTest {
    private static final SchemaChange RENAME = new SchemaChange(
            "5:2/0/d.a.b",
            Kind.RENAME,
            "d.a.b",
            "d.b",
            false,
            BsonDocument.parse("{validator: {x: 1}}"),
            List.of(BsonDocument.parse("{key: {x: 1}, name: 'x'}")),
            false,
            Map.of("p.d.a.b", 4, "p.d.b", 4));

    @Test
    void aRecordIsReadAsItWasWritten() {
        assertEquals(RENAME, SchemaChange.decode(RENAME.key(), RENAME.value()));
        assertEquals(Optional.of("p.d.a.b"), RENAME.topic("d.a.b"));
        assertEquals(Optional.of("p.d.b"), RENAME.topic("d.b"));
        assertEquals(Optional.empty(), RENAME.topic("a.b"));
    }

    @Test
    void aKeyIsRecognised() {
        assertTrue(SchemaChange.isKey(RENAME.key()));
        for (String other : List.of("{}", "{_id: 'ddl'}", "{_id: 1}", "{ddl: 1}", "{ddm: 'x'}", "{ddll: 'x'}"))
            assertFalse(SchemaChange.isKey(BsonBytes.of(BsonDocument.parse(other))), other);
        int shortest = new SchemaChange(
                        "", Kind.DROP, "d.a", "", false, new BsonDocument(), List.of(), false, Map.of("p.d.a", 1))
                .key()
                .length;
        for (int length = 0; length < shortest - 1; length++)
            assertFalse(SchemaChange.isKey(Arrays.copyOf(RENAME.key(), length)), "of " + length + " bytes");
    }

    @Test
    void aKeyThatIsNotWholeIsNotRead() {
        byte[] key = RENAME.key();
        byte[] longer = Arrays.copyOf(key, key.length + 1);
        byte[] unended = key.clone();
        unended[key.length - 1] = 1;
        for (byte[] broken : List.of(longer, unended)) {
            assertTrue(SchemaChange.isKey(broken));
            assertThrows(ContractException.class, () -> SchemaChange.decode(broken, RENAME.value()));
        }
    }

    @Test
    void whatBreaksTheContractIsNotRead() {
        byte[] key = RENAME.key();
        for (String value : List.of(
                "{}",
                "{ddl: 'shard', ns: 'd.a', topics: {'p.d.a': 1}}",
                "{ddl: 'drop', ns: 'd.a'}",
                "{ddl: 'drop', ns: 'd.a', topics: {'p.d.a': 'x'}}",
                "{ddl: 'drop', ns: 'd.a', topics: {'p.d.b': 1}}",
                "{ddl: 'rename', ns: 'd.a', topics: {'p.d.a': 1}}",
                "{ddl: 'create', ns: 'd.a', topics: {'p.d.a': 1}, indexes: [1]}"))
            assertThrows(
                    ContractException.class,
                    () -> SchemaChange.decode(key, BsonBytes.of(BsonDocument.parse(value))),
                    value);
        assertThrows(ContractException.class, () -> SchemaChange.decode(key, null));
        assertThrows(ContractException.class, () -> SchemaChange.decode(key, new byte[] {1, 2, 3}));
        byte[] document = BsonBytes.of(BsonDocument.parse("{_id: 1}"));
        assertThrows(ContractException.class, () -> SchemaChange.decode(document, RENAME.value()));
    }

    @Test
    void idsHaveTheOrderOfTheLog() {
        assertTrue(SchemaChange.isLater("5:2/0/d.a", "5:1/7/d.a"));
        assertTrue(SchemaChange.isLater("5:2/10/d.a", "5:2/9/d.a"));
        assertTrue(SchemaChange.isLater("5:3/0/d.a", "5:2/1/d.b"));
        assertFalse(SchemaChange.isLater("5:2/1/d.a", "5:2/1/d.b"), "of one change");
        assertFalse(SchemaChange.isLater("5:2/1/d.a", "5:2/2/d.b"));
        assertFalse(SchemaChange.isLater("4:9/1/d.a", "5:2/1/d.b"));
        assertFalse(SchemaChange.isLater("x", "5:2/1/d.b"));
        assertFalse(SchemaChange.isLater("x/2/d.a", "5:2/1/d.b"), "an id that cannot be read comes behind none");
        assertFalse(SchemaChange.isLater("5:2/x/d.a", "5:2/1/d.b"));
    }
}
