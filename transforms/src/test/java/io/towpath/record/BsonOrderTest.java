package io.towpath.record;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.support.Raw;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Each list ascends as MongoDB 6.0.5 has it; BsonOrderServerTest asks the server again. */
class BsonOrderTest {
    private static final byte[] ZEROS = new byte[12];

    static Stream<Arguments> ascending() {
        return Stream.of(
                Arguments.of("types", types()),
                Arguments.of("numbers", numbers()),
                Arguments.of("texts", texts()),
                Arguments.of("documents", documents()),
                Arguments.of("the rest", rest()));
    }

    private static List<byte[]> types() {
        return List.of(
                Raw.element(0xFF, "_id"),
                Raw.element(6, "_id"),
                Raw.element(10, "_id"),
                Raw.int64("_id", Long.MAX_VALUE),
                Raw.string("_id", ""),
                Raw.embedded("_id"),
                Raw.array("_id"),
                Raw.element(5, "_id", new byte[5]),
                Raw.element(7, "_id", ZEROS),
                Raw.element(8, "_id", new byte[1]),
                Raw.element(8, "_id", new byte[] {1}),
                Raw.element(9, "_id", new byte[] {0, 0, 0, 0, 0, 0, 0, (byte) 0x80}),
                Raw.timestamp("_id", 0, 0),
                Raw.element(11, "_id", new byte[2]),
                Raw.element(12, "_id", new byte[] {1, 0, 0, 0, 0}, ZEROS),
                Raw.element(13, "_id", new byte[] {1, 0, 0, 0, 0}),
                Raw.codeWithScope("_id", ""),
                Raw.element(0x7F, "_id"));
    }

    private static List<byte[]> numbers() {
        return List.of(
                Raw.decimalBits("_id", 0, 0x7C00000000000000L),
                Raw.doubleOf("_id", Double.NEGATIVE_INFINITY),
                Raw.decimal("_id", "-9E+6144"),
                Raw.doubleOf("_id", -Double.MAX_VALUE),
                Raw.int64("_id", Long.MIN_VALUE),
                Raw.int32("_id", -1),
                Raw.decimal("_id", "-1E-6176"),
                Raw.doubleOf("_id", -0.0),
                Raw.decimal("_id", "1E-6176"),
                Raw.doubleOf("_id", Double.MIN_VALUE),
                Raw.decimal("_id", "0.1"),
                Raw.decimal("_id", "0.1000000000000000055511151231257827"),
                Raw.doubleOf("_id", 0.1),
                Raw.int32("_id", 5),
                Raw.doubleOf("_id", 5.5),
                Raw.doubleOf("_id", 0x1p53),
                Raw.int64("_id", (1L << 53) + 1),
                Raw.int64("_id", Long.MAX_VALUE),
                Raw.decimal("_id", "9223372036854775807.5"),
                Raw.doubleOf("_id", 0x1p63),
                Raw.doubleOf("_id", Double.MAX_VALUE),
                Raw.decimal("_id", "9E+6144"),
                Raw.decimal("_id", "Infinity"));
    }

    private static List<byte[]> texts() {
        return List.of(
                Raw.string("_id", ""),
                Raw.symbol("_id", "\0"),
                Raw.string("_id", "B"),
                Raw.symbol("_id", "a"),
                Raw.string("_id", "a\0"),
                Raw.string("_id", "a\0b"),
                Raw.symbol("_id", "a\u0001"),
                Raw.string("_id", "ab"),
                Raw.string("_id", "\u00e9"),
                Raw.string("_id", "\uffee"), // before a surrogate pair: by UTF-8, not by UTF-16
                Raw.string("_id", "\ud83d\ude00"));
    }

    private static List<byte[]> documents() {
        return List.of(
                Raw.embedded("_id"),
                Raw.embedded("_id", Raw.element(0xFF, "z")),
                Raw.embedded("_id", Raw.int32("z", 9)),
                Raw.embedded("_id", Raw.string("a", "")), // the type goes before the name
                Raw.embedded("_id", Raw.string("a", ""), Raw.element(10, "b")),
                Raw.embedded("_id", Raw.string("ab", "")),
                Raw.embedded("_id", Raw.embedded("a", Raw.int32("x", 1))),
                Raw.embedded("_id", Raw.embedded("a", Raw.doubleOf("x", 1.5))),
                Raw.embedded("_id", Raw.array("a")),
                Raw.embedded("_id", Raw.array("a", Raw.int32("9", 1))),
                Raw.embedded("_id", Raw.array("a", Raw.int32("0", 2))),
                Raw.embedded("_id", Raw.array("a", Raw.int32("0", 2), Raw.int32("1", 0))));
    }

    private static List<byte[]> rest() {
        return List.of(
                Raw.element(5, "_id", new byte[] {1, 0, 0, 0, (byte) 0x80, 9}), // length, subtype, bytes
                Raw.element(5, "_id", new byte[] {2, 0, 0, 0, 0, 0, 1}),
                Raw.element(5, "_id", new byte[] {2, 0, 0, 0, (byte) 0x80, 0, 0}),
                Raw.element(7, "_id", new byte[11], new byte[] {1}),
                Raw.element(7, "_id", new byte[11], new byte[] {(byte) 0x80}),
                Raw.element(9, "_id", new byte[] {-1, -1, -1, -1, -1, -1, -1, -1}),
                Raw.element(9, "_id", new byte[8]),
                Raw.timestamp("_id", 1, -1),
                Raw.timestamp("_id", 0x80000000, 0),
                Raw.element(11, "_id", new byte[] {'a', 0, 'i', 0}),
                Raw.element(11, "_id", new byte[] {'a', 'b', 0, 0}),
                Raw.element(12, "_id", new byte[] {2, 0, 0, 0, 'z', 0}, ZEROS),
                Raw.element(12, "_id", new byte[] {3, 0, 0, 0, 'a', 'a', 0}, ZEROS),
                Raw.element(13, "_id", new byte[] {2, 0, 0, 0, 'b', 0}),
                Raw.codeWithScope("_id", "a", Raw.int32("x", 2)),
                Raw.codeWithScope("_id", "b"),
                Raw.codeWithScope("_id", "b", Raw.int32("x", 1)));
    }

    @ParameterizedTest(name = "{0}")
    @MethodSource("ascending")
    void everyOneStandsWhereTheServerHasIt(String what, List<byte[]> elements) {
        for (int i = 0; i < elements.size(); i++) {
            for (int j = 0; j < elements.size(); j++) {
                byte[] left = Raw.document(Raw.int32("before", 1), elements.get(i));
                byte[] right = Raw.document(elements.get(j));
                assertEquals(
                        Integer.compare(i, j),
                        Integer.signum(BsonOrder.compare(left, right)),
                        "%s: number %d against number %d".formatted(what, i, j));
            }
        }
    }

    @Test
    void equalAreThoseOfOneKey() {
        List<byte[]> documents = random(300);
        int equal = 0;
        for (byte[] left : documents) {
            for (byte[] right : documents) {
                boolean same = Arrays.equals(CanonicalKey.of(left), CanonicalKey.of(right));
                int order = BsonOrder.compare(left, right);
                assertEquals(same, order == 0, () -> Arrays.toString(left) + " and " + Arrays.toString(right));
                assertEquals(-Integer.signum(order), Integer.signum(BsonOrder.compare(right, left)));
                assertEquals(order, BsonOrder.compare(CanonicalKey.of(left), right));
                equal += same ? 1 : 0;
            }
        }
        assertTrue(equal > 2 * documents.size(), "too few equal pairs to tell: " + equal);
    }

    @Test
    void randomOnesKeepOneOrder() {
        List<byte[]> documents = random(2000);
        documents.sort(BsonOrder::compare); // throws when the order contradicts itself
        for (int i = 0; i < documents.size(); i++) {
            for (int j = i; j < documents.size(); j += 1 + (j - i) / 3) {
                assertTrue(BsonOrder.compare(documents.get(i), documents.get(j)) <= 0);
            }
        }
    }

    @Test
    void damageIsRefusedWithWords() {
        byte[] whole = Raw.document(Raw.codeWithScope("_id", "f()", Raw.int32("x", 1)));
        byte[] scope = whole.clone();
        scope[13] = 120; // the code's length
        byte[] behind = Raw.document(Raw.codeWithScope("_id", "f()", Raw.int32("x", 1)), Raw.embedded("z"));
        behind[13] = 19; // so that the next element would be its scope
        byte[] cut = Arrays.copyOf(whole, whole.length - 1);
        for (byte[] damaged : List.of(scope, behind, cut, new byte[0])) {
            ContractException error = assertThrows(ContractException.class, () -> BsonOrder.compare(whole, damaged));
            assertTrue(error.getMessage().startsWith("BSON is "), error.getMessage());
        }
        byte[] none = Raw.document(Raw.int32("id", 1));
        ContractException error = assertThrows(ContractException.class, () -> BsonOrder.compare(whole, none));
        assertEquals("a document without an _id has no place in the order of _ids", error.getMessage());
    }

    private static List<byte[]> random(int count) {
        List<byte[]> documents = new ArrayList<>();
        RandomIds many = new RandomIds(7);
        NearlyEqual near = new NearlyEqual(7);
        for (int i = 0; i < count; i++) documents.add(i % 2 == 0 ? many.document() : near.document());
        return documents;
    }
}
