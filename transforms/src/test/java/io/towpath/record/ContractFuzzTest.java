package io.towpath.record;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.support.Fuzz;
import io.towpath.support.Garbage;
import io.towpath.support.Raw;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.UnaryOperator;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.constraints.Chars;
import net.jqwik.api.constraints.StringLength;
import org.bson.BsonBinaryReader;
import org.bson.BsonDocument;
import org.bson.BsonSerializationException;
import org.bson.codecs.BsonDocumentCodec;
import org.bson.codecs.DecoderContext;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Whatever lies on a topic: what it says, or a {@link ContractException}; nothing else, and soon. */
class ContractFuzzTest {
    private static final byte[] DOCUMENT = Raw.document(Raw.int32("_id", 5), Raw.join(Raw.everyType()));
    private static final byte[] UPDATE = Raw.document(
            Raw.embedded("$set", Raw.join(Raw.everyType()), Raw.int32("a.b", 1)),
            Raw.embedded("$unset", Raw.string("gone", ""), Raw.string("a.gone", "")),
            Raw.embedded("$truncate", Raw.int32("list", 3)),
            Raw.embedded(
                    "$splice",
                    Raw.array(
                            "spliced.list",
                            Raw.int32("0", 9),
                            Raw.array("1", Raw.int32("0", 1), Raw.int32("1", 2), Raw.array("2", Raw.int32("0", 5))),
                            Raw.array("2", Raw.int32("0", 9), Raw.int32("1", 0), Raw.array("2", Raw.everyType())))));

    @Test
    void aValueSaysWhatItIsOrIsRefused() {
        Map<String, Integer> seen = Fuzz.run("values", 40_000, random -> {
            byte[] good = random.nextBoolean() ? DOCUMENT : UPDATE;
            byte[] value = new Garbage(random).like(good);
            try {
                Change change = Change.decode(value);
                if (change instanceof Change.Document) {
                    assertArrayEquals(value, change.encode());
                    CanonicalKey.of(value);
                    BsonOrder.compare(value, DOCUMENT);
                    return "a document";
                }
                return "an update";
            } catch (ContractException refused) {
                assertTrue(refused.getMessage().length() > 10, refused::getMessage);
                return "refused";
            }
        });
        assertTrue(seen.get("refused") > Fuzz.times(20_000), seen::toString);
        assertEquals(3, seen.size(), seen::toString);
    }

    /** What is whole by our own rules can be decoded by the driver, up to what the server itself does not look at. */
    @Test
    void whatIsWholeCanBeReadToTheEnd() {
        Map<String, Integer> seen = Fuzz.run("whole documents", 20_000, random -> {
            byte[] value = new Garbage(random).like(DOCUMENT);
            try {
                WholeBson.require(value);
            } catch (ContractException refused) {
                return "refused";
            }
            try {
                new BsonDocumentCodec()
                        .decode(
                                new BsonBinaryReader(ByteBuffer.wrap(value)),
                                DecoderContext.builder().build());
            } catch (BsonSerializationException error) {
                assertEquals("Binary sub type OldBinary has inconsistent sizes", error.getMessage());
                return "no driver decodes it";
            }
            return "read";
        });
        assertEquals(Set.of("read", "refused", "no driver decodes it"), seen.keySet(), seen::toString);
    }

    @Test
    void everyTypeIsWholeAndNothingShorterIs() {
        WholeBson.require(DOCUMENT);
        WholeBson.require(UPDATE);
        for (int length = 0; length < DOCUMENT.length; length++) {
            byte[] cut = java.util.Arrays.copyOf(DOCUMENT, length);
            assertThrows(ContractException.class, () -> WholeBson.require(cut));
        }
    }

    /** What a server stores must not stop a pipeline. */
    @Test
    void theSmallestValuesAreWhole() {
        WholeBson.require(Raw.document(
                Raw.string("", ""), Raw.symbol("a", ""), Raw.element(13, "b", new byte[] {1, 0, 0, 0, 0})));
        WholeBson.require(Raw.document(Raw.codeWithScope("c", "")));
        WholeBson.require(Raw.document(Raw.element(12, "d", new byte[] {1, 0, 0, 0, 0}, new byte[12])));
        WholeBson.require(Raw.document(Raw.element(8, "false", new byte[1])));
        Change.decode(BsonBytes.of(BsonDocument.parse("{$truncate: {l: 0}}")));
    }

    @Test
    void aPathAsDeepAsAnyDocumentIsTakenWhateverItsValue() {
        String deepest = "a" + ".a".repeat(WholeBson.DEEPEST - 1);
        for (int value = 0; value < 256; value++)
            Change.decode(BsonBytes.of(BsonDocument.parse("{$set: {'%s': %d}}".formatted(deepest, value))));
    }

    @Test
    void codeWhosePartsDoNotFillItIsRefused() {
        byte[] text = {3, 0, 0, 0, 'f', '(', 0};
        byte[] junk = Raw.document(Raw.element(15, "c", new byte[] {20, 0, 0, 0}, text, Raw.document(), new byte[4]));
        assertThrows(ContractException.class, () -> WholeBson.require(junk));
        for (int length = -1; length < 60; length++) {
            if (length == 3) continue;
            byte[] wrong = {(byte) length, (byte) (length < 0 ? -1 : 0), 0, 0, 'f', '(', 0};
            byte[] code = Raw.document(Raw.element(15, "c", new byte[] {16, 0, 0, 0}, wrong, Raw.document()));
            assertThrows(ContractException.class, () -> WholeBson.require(code));
        }
    }

    @Test
    void asDeepAsAServerStoresIsWhole() {
        for (UnaryOperator<byte[]> around : List.<UnaryOperator<byte[]>>of(
                inner -> Raw.embedded("a", inner), inner -> Raw.codeWithScope("a", "", inner))) {
            WholeBson.require(nested(WholeBson.DEEPEST - 1, around));
            ContractException deeper =
                    assertThrows(ContractException.class, () -> WholeBson.require(nested(WholeBson.DEEPEST, around)));
            assertTrue(deeper.getMessage().startsWith("BSON is nested deeper than 250 levels"), deeper::getMessage);
        }
    }

    @Test
    void aPathDeeperThanAnyDocumentIsRefused() {
        byte[] deep = BsonBytes.of(BsonDocument.parse("{$unset: {'a%s': ''}}".formatted(".a".repeat(100_000))));
        ContractException refused = assertThrows(ContractException.class, () -> Change.decode(deep));
        assertEquals(
                "$unset of an update names a place 100001 levels deep, and no document has more than 250",
                refused.getMessage());
    }

    @Test
    void anUpdateThatSaysAPartTwiceIsRefused() {
        byte[] twice = Raw.document(Raw.embedded("$set", Raw.int32("a", 1)), Raw.embedded("$set", Raw.int32("b", 1)));
        assertEquals(
                "an update with two parts $set",
                assertThrows(ContractException.class, () -> Change.decode(twice))
                        .getMessage());
    }

    @Property
    void aClusterTimeIsTwoNumbersOrRefused(
            @ForAll @StringLength(max = 14) @Chars({'0', '1', '2', '9', ':', '-', '+', ' ', 'e', '.', 'x', '\u0660'})
                    String text) {
        try {
            ClusterTime time = ClusterTime.parse(text);
            assertEquals(time, ClusterTime.ofBits(time.bits()));
        } catch (ContractException refused) {
            assertFalse(text.matches("\\d{1,9}:\\d{1,9}"), text);
        }
    }

    @Property
    void aClusterTimeIsReadAsItIsWritten(@ForAll long bits, @ForAll long other) {
        ClusterTime time = ClusterTime.ofBits(bits);
        assertEquals(time, ClusterTime.parse(time.toString()));
        assertEquals(bits, time.timestamp().getValue());
        assertEquals(time, time.next().previous());
        assertEquals(Long.compareUnsigned(bits, other) > 0, time.isAfter(ClusterTime.ofBits(other)));
        if (bits != -1) assertTrue(time.next().isAfter(time) && !time.isAfter(time.next()) && !time.isAfter(time));
    }

    @ParameterizedTest
    @ValueSource(strings = {"", ":", "1", "1:", ":1", "1:-1", "-1:1", "1:2:", "1:4294967296", "a:b"})
    void whatIsNoClusterTimeIsRefused(String text) {
        assertThrows(ContractException.class, () -> ClusterTime.parse(text));
    }

    private static byte[] nested(int levels, UnaryOperator<byte[]> around) {
        byte[] elements = new byte[0];
        for (int i = 0; i < levels; i++) elements = around.apply(elements);
        return Raw.document(elements);
    }
}
