package io.towpath.record;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.support.Raw;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.constraints.IntRange;
import org.bson.BsonBinary;
import org.bson.BsonDocument;
import org.bson.BsonInt64;
import org.bson.BsonString;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class ChunksTest {
    private static final byte[] KEY = BsonBytes.of(new BsonDocument("_id", new BsonInt64(5)));
    private static final byte[] ID = new byte[Chunks.ID_BYTES];

    private static byte[] document(int bytes) {
        byte[] data = new byte[bytes];
        for (int i = 0; i < bytes; i++) data[i] = (byte) (i * 31);
        return BsonBytes.of(new BsonDocument("_id", new BsonInt64(5)).append("d", new BsonBinary(data)));
    }

    private static List<byte[]> cut(Chunks chunks, byte[] value) {
        List<byte[]> parts = new ArrayList<>();
        for (int number = 0; number < chunks.count(); number++) parts.add(chunks.chunk(value, number));
        return parts;
    }

    /** Each fits into its room with its key, and together they are the value. */
    @Property(tries = 300)
    void whatIsCutIsPutTogetherAgain(
            @ForAll @IntRange(max = 5_000) int bytes, @ForAll @IntRange(min = 100, max = 3_000) int room) {
        byte[] value = document(bytes);
        Chunks chunks = Chunks.of(ID, KEY, value, room);
        List<byte[]> parts = cut(chunks, value);
        Set<List<Byte>> keys = new HashSet<>();
        for (int number = 0; number < chunks.count(); number++) {
            byte[] key = chunks.key(KEY, number);
            assertTrue(key.length + parts.get(number).length <= room, () -> key.length + " and more than " + room);
            assertTrue(Chunks.isKey(key));
            assertFalse(CanonicalKey.isKey(key));
            assertTrue(Chunks.isChunk(parts.get(number)));
            assertArrayEquals(KEY, Chunks.documentKey(key));
            List<Byte> boxed = new ArrayList<>();
            for (byte each : key) boxed.add(each);
            assertTrue(keys.add(boxed), "one key for two chunks");
        }
        assertTrue(Chunks.areNamedIn(chunks.value()));
        Chunks decoded = Chunks.decode(chunks.value());
        assertEquals(
                List.of(chunks.count(), value.length, true),
                List.of(decoded.count(), decoded.size(), decoded.isDocument()));
        assertArrayEquals(ID, decoded.id());
        assertArrayEquals(value, decoded.join(parts));
    }

    /** As the driver would decode and encode it, it would be another key, in another partition. */
    @Test
    void theBytesOfAnIdThatIsNotUtf8StayAsTheyAre() {
        byte[] key = Raw.document(Raw.element(0x02, "_id", new byte[] {2, 0, 0, 0, (byte) 0xFF, 0}));
        assertTrue(CanonicalKey.isKey(key));
        assertArrayEquals(key, Chunks.documentKey(new Chunks(ID, 9, 90, true).key(key, 3)));
    }

    @Test
    void anUpdateIsNoDocument() {
        byte[] update = BsonBytes.of(new BsonDocument("$set", new BsonDocument("a", new BsonString("b".repeat(500)))));
        assertFalse(Chunks.decode(Chunks.of(ID, KEY, update, 200).value()).isDocument());
    }

    @Test
    void otherRecordsAreNotTakenForChunks() {
        byte[] change = BsonBytes.of(BsonDocument.parse("{ddl: 'x'}"));
        for (byte[] other : List.of(KEY, change, document(10), new byte[0], new byte[] {5, 0, 0, 0, 0})) {
            assertFalse(Chunks.isKey(other));
            assertFalse(Chunks.areNamedIn(other));
            assertFalse(Chunks.isChunk(other));
        }
        assertFalse(Chunks.areNamedIn(null));
        assertThrows(ContractException.class, () -> Chunks.decode(KEY));
    }

    @Test
    void chunksOfAnotherValueAreNoticed() {
        byte[] value = document(1_000);
        Chunks chunks = Chunks.of(ID, KEY, value, 400);
        List<byte[]> parts = cut(chunks, value);
        List<byte[]> more = new ArrayList<>(parts);
        more.add(parts.get(0));
        for (List<byte[]> wrong : List.of(more, parts.subList(1, parts.size()), List.of(KEY), List.of(new byte[3])))
            assertThrows(ContractException.class, () -> chunks.join(wrong));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "{$chunks: {}}",
                "{$chunks: {of: 1, count: 1, size: 5, document: true}}",
                "{$chunks: {of: {$binary: {base64: 'AAAA', subType: '00'}}, count: 1, size: 5, document: true}}",
                "{$chunks: {of: {$binary: {base64: 'AAAAAAAAAAAAAAAAAAAAAA==', subType: '00'}}, count: 0, size: 5, document: true}}",
                "{$chunks: {of: {$binary: {base64: 'AAAAAAAAAAAAAAAAAAAAAA==', subType: '00'}}, count: 9, size: 5, document: true}}",
                "{$chunks: {of: {$binary: {base64: 'AAAAAAAAAAAAAAAAAAAAAA==', subType: '00'}}, count: 1, size: -5, document: true}}",
                "{$chunks: {of: {$binary: {base64: 'AAAAAAAAAAAAAAAAAAAAAA==', subType: '00'}}, count: 1, size: 2147483647, document: true}}",
                "{$chunks: {of: {$binary: {base64: 'AAAAAAAAAAAAAAAAAAAAAA==', subType: '00'}}, count: 1000000, size: 1000000, document: true}}"
            })
    void whatCannotBeIsRefused(String value) {
        assertThrows(ContractException.class, () -> Chunks.decode(BsonBytes.of(BsonDocument.parse(value))));
    }

    @Test
    void aChunkThatIsMissingIsNoChange() {
        byte[] value = Chunks.of(ID, KEY, document(1_000), 400).value();
        ContractException error = assertThrows(ContractException.class, () -> Change.decode(KEY, value));
        assertTrue(error.getMessage().contains("in chunks"), error.getMessage());
    }
}
