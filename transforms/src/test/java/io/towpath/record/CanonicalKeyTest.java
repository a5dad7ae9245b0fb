package io.towpath.record;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.support.Raw;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Stream;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.constraints.IntRange;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** What is equal and what is not was seen on MongoDB 6.0.5, as a duplicate key or none; CanonicalKeyServerTest asks it again. */
class CanonicalKeyTest {
    private static final double TENTH = 0.1;

    static Stream<Arguments> equal() {
        return Stream.of(
                pair(
                        decimal(0x378D8E6400000000L, 0x3041ED09BEAD87C0L),
                        Raw.int64("_id", 0)), // 10^34 has too many digits
                pair(decimal(Long.MAX_VALUE, 0x3040000000000000L), Raw.int64("_id", Long.MAX_VALUE)),
                pair(
                        decimal(5, 0x303E000000000000L),
                        Raw.element(1, "_id", new byte[] {0, 0, 0, 0, 0, 0, (byte) 0xE0, 0x3F})),
                pair(Raw.int32("_id", 5), Raw.int64("_id", 5)),
                pair(Raw.int32("_id", 5), Raw.doubleOf("_id", 5)),
                pair(Raw.int32("_id", 5), Raw.decimal("_id", "5")),
                pair(Raw.int32("_id", 5), Raw.decimal("_id", "5.00")),
                pair(Raw.int32("_id", 0), Raw.doubleOf("_id", -0.0)),
                pair(Raw.int32("_id", 0), Raw.decimal("_id", "-0E-20")),
                pair(Raw.int32("_id", 0), Raw.decimal("_id", "0E+6111")),
                pair(Raw.int32("_id", 0), Raw.decimalBits("_id", -1, 0x3041FFFFFFFFFFFFL)), // over 34 digits: zero
                pair(Raw.int32("_id", 0), Raw.decimalBits("_id", -1, 0x6C10000000000000L)),
                pair(Raw.doubleBits("_id", 0x7FF8000000000000L), Raw.doubleBits("_id", 0xFFF0000000000001L)),
                pair(Raw.doubleBits("_id", 0x7FF8000000000000L), Raw.decimalBits("_id", 7, 0xFE00000000000000L)),
                pair(Raw.doubleOf("_id", Double.NEGATIVE_INFINITY), Raw.decimal("_id", "-Infinity")),
                pair(Raw.doubleOf("_id", 0.5), Raw.decimal("_id", "0.50")),
                pair(Raw.doubleOf("_id", 0x1p63), Raw.decimal("_id", "9223372036854775808")),
                pair(Raw.int64("_id", Long.MIN_VALUE), Raw.doubleOf("_id", -0x1p63)),
                pair(Raw.int64("_id", Long.MAX_VALUE), Raw.decimal("_id", "9223372036854775807.0")),
                pair(Raw.decimal("_id", "1E+6144"), Raw.decimal("_id", "10E+6143")),
                pair(Raw.symbol("_id", "s"), Raw.string("_id", "s")),
                pair(Raw.embedded("_id", Raw.int32("a", 1)), Raw.embedded("_id", Raw.doubleOf("a", 1))),
                pair(
                        Raw.embedded("_id", Raw.array("a", Raw.int32("0", 1))),
                        Raw.embedded("_id", Raw.array("a", Raw.int64("7", 1)))),
                pair(
                        Raw.codeWithScope("_id", "f()", Raw.int32("x", 1)),
                        Raw.codeWithScope("_id", "f()", Raw.decimal("x", "1.0"))));
    }

    static Stream<Arguments> different() {
        return Stream.of(
                pair(decimal(0x378D8E63FFFFFFFFL, 0x3041ED09BEAD87C0L), Raw.int64("_id", 0)),
                pair(decimal(Long.MIN_VALUE, 0x3040000000000000L), Raw.int64("_id", Long.MAX_VALUE)),
                pair(Raw.doubleOf("_id", TENTH), Raw.decimal("_id", "0.1")),
                pair(Raw.doubleOf("_id", TENTH), Raw.decimal("_id", "0.1000000000000000055511151231257827")),
                pair(Raw.int64("_id", (1L << 53) + 1), Raw.doubleOf("_id", 0x1p53)),
                pair(Raw.int64("_id", Long.MAX_VALUE), Raw.doubleOf("_id", 0x1p63)),
                pair(Raw.doubleOf("_id", Double.POSITIVE_INFINITY), Raw.decimal("_id", "1E+6144")),
                pair(Raw.element(10, "_id"), Raw.embedded("_id", Raw.element(6, "u"))),
                pair(Raw.embedded("_id", Raw.element(10, "u")), Raw.embedded("_id", Raw.element(6, "u"))),
                pair(Raw.timestamp("_id", 0, 1), Raw.element(9, "_id", new byte[] {1, 0, 0, 0, 0, 0, 0, 0})),
                pair(Raw.int32("_id", 1), Raw.element(8, "_id", new byte[] {1})),
                pair(Raw.string("_id", "s"), Raw.element(13, "_id", new byte[] {2, 0, 0, 0, 's', 0})),
                pair(
                        Raw.embedded("_id", Raw.int32("a", 1), Raw.int32("b", 1)),
                        Raw.embedded("_id", Raw.int32("b", 1), Raw.int32("a", 1))),
                pair(
                        Raw.embedded("_id", Raw.int32("a", 1)),
                        Raw.embedded("_id", Raw.int32("a", 1), Raw.int32("a", 1))));
    }

    @ParameterizedTest
    @MethodSource("equal")
    void equalIdsHaveOneKey(byte[] left, byte[] right) {
        assertArrayEquals(CanonicalKey.of(left), CanonicalKey.of(right));
        assertTrue(CanonicalKey.isKeyOf(CanonicalKey.of(left), right));
    }

    @ParameterizedTest
    @MethodSource("different")
    void differentIdsHaveTwo(byte[] left, byte[] right) {
        assertFalse(Arrays.equals(CanonicalKey.of(left), CanonicalKey.of(right)));
        assertFalse(CanonicalKey.isKeyOf(CanonicalKey.of(left), right));
    }

    @ParameterizedTest
    @MethodSource({"equal", "different"})
    void onlyTheCanonicalFormIsAKey(byte[] left, byte[] right) {
        for (byte[] document : List.of(left, right)) {
            assertTrue(CanonicalKey.isKey(CanonicalKey.of(document)));
            assertEquals(Arrays.equals(CanonicalKey.of(document), document), CanonicalKey.isKey(document));
        }
    }

    @Test
    void aKeyHasNothingButAnId() {
        assertFalse(CanonicalKey.isKey(Raw.document(Raw.string("_id", "k"), Raw.int32("z", 1))));
        assertFalse(CanonicalKey.isKey(Raw.document(Raw.int64("_id", 5), Raw.int32("z", 1))));
        assertFalse(CanonicalKey.isKey(Raw.document(Raw.string("id", "k"))));
        assertFalse(CanonicalKey.isKey(Raw.document()));
    }

    @Test
    void keyIsTheIdAloneWhateverIsAroundIt() {
        byte[] document = Raw.document(Raw.join(Raw.everyType()), Raw.string("_id", "k"), Raw.int32("z", 1));
        assertArrayEquals(Raw.document(Raw.string("_id", "k")), CanonicalKey.of(document));
    }

    /** However much is in it: the key has the same bytes in every version, or a document's changes would be in two partitions. */
    @Property(tries = 200)
    void theBytesOfALargeKey(@ForAll @IntRange(max = 100) int count, @ForAll @IntRange(max = 300) int length) {
        List<byte[]> given = new ArrayList<>(List.of(Raw.string("s", "x".repeat(length))));
        List<byte[]> expected = new ArrayList<>(given);
        for (int i = 0; i < count; i++) {
            given.add(Raw.array("a", Raw.int32("9", i), Raw.symbol("9", "t"), Raw.decimal("9", "0.1")));
            expected.add(Raw.array("a", Raw.int64("0", i), Raw.string("1", "t"), Raw.decimal("2", "0.1")));
            given.add(Raw.codeWithScope("c", "f()", Raw.doubleOf("n", i), Raw.embedded("e")));
            expected.add(Raw.codeWithScope("c", "f()", Raw.int64("n", i), Raw.embedded("e")));
        }
        assertArrayEquals(
                Raw.document(Raw.embedded("_id", expected.toArray(byte[][]::new))),
                CanonicalKey.of(Raw.document(Raw.embedded("_id", given.toArray(byte[][]::new)))));
    }

    @Test
    void aDecimalOfTooManyDigitsIsZeroAsTheServerHasIt() {
        byte[] zero = CanonicalKey.of(Raw.document(Raw.int32("_id", 0)));
        assertArrayEquals(zero, CanonicalKey.of(Raw.document(Raw.decimalBits("_id", 5, 0x6000000000000000L))));
        BigInteger tooLarge = BigInteger.TEN.pow(34);
        long high = 0x3040000000000000L | tooLarge.shiftRight(64).longValue();
        assertArrayEquals(zero, CanonicalKey.of(Raw.document(Raw.decimalBits("_id", tooLarge.longValue(), high))));
    }

    @Test
    void keyOfAKeyIsTheSame() {
        NearlyEqual random = new NearlyEqual(7);
        for (int i = 0; i < 2000; i++) {
            byte[] key = CanonicalKey.of(random.document());
            assertArrayEquals(key, CanonicalKey.of(key));
        }
    }

    @Test
    void oddBytesInNamesAndTextsAreKept() {
        byte[] odd =
                Raw.document(Raw.embedded("_id", Raw.element(2, "x", new byte[] {3, 0, 0, 0, (byte) 0xC3, 0x28, 0})));
        assertArrayEquals(odd, CanonicalKey.of(odd));
    }

    @Test
    void everyCutIsRefusedWithWords() {
        byte[] document = Raw.document(Raw.join(Raw.everyType()), Raw.string("_id", "k"));
        for (int length : List.of(0, 4, 5, 20, document.length / 2, document.length - 1)) {
            byte[] cut = Arrays.copyOf(document, length);
            ContractException error = assertThrows(ContractException.class, () -> CanonicalKey.of(cut));
            assertTrue(error.getMessage().startsWith("BSON is "), error.getMessage());
        }
    }

    @Test
    void documentWithoutIdIsRefused() {
        ContractException error =
                assertThrows(ContractException.class, () -> CanonicalKey.of(Raw.document(Raw.int32("id", 1))));
        assertEquals("a document without an _id has no key", error.getMessage());
    }

    private static Arguments pair(byte[] left, byte[] right) {
        return Arguments.of(Raw.document(left), Raw.document(right));
    }

    /** A decimal from its two halves. */
    private static byte[] decimal(long low, long high) {
        ByteBuffer halves = ByteBuffer.allocate(16).order(ByteOrder.LITTLE_ENDIAN);
        return Raw.element(19, "_id", halves.putLong(low).putLong(high).array());
    }
}
