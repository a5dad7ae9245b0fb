package io.towpath.record;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.towpath.support.Raw;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

class ChangeTest {
    @Test
    void documentKeepsItsBytes() {
        byte[] document = Raw.document(
                Raw.join(Raw.everyType()), Raw.int32("twice", 1), Raw.int32("twice", 2), Raw.int32("_id", 1));
        Change change = Change.decode(document);
        assertInstanceOf(Change.Document.class, change);
        assertArrayEquals(document, change.encode());
    }

    @Test
    void updateKeepsItsBytesAndItsOrder() {
        byte[] value = Raw.document(
                Raw.embedded(
                        "$set",
                        Raw.join(Raw.everyType()),
                        Raw.embedded("x", Raw.int32("twice", 1), Raw.int32("twice", 2))),
                Raw.embedded("$unset", Raw.string("z", ""), Raw.string("a.b", "")),
                Raw.embedded("$truncate", Raw.int32("list.0", 3)));
        Change.Update update = assertInstanceOf(Change.Update.class, Change.decode(value));
        assertEquals(List.of("z", "a.b"), update.unset());
        assertEquals(List.of(new Change.Truncation("list.0", 3)), update.truncations());
        assertArrayEquals(value, update.encode());
    }

    @Test
    void updateHasOnlyThePartsThatSaySomething() {
        byte[] value = Raw.document(Raw.embedded("$unset", Raw.string("a", "")));
        assertArrayEquals(value, Change.decode(value).encode());
    }

    @Test
    void nullIsADelete() {
        assertEquals(new Change.Delete(), Change.decode(null));
        assertNull(new Change.Delete().encode());
    }

    static Stream<Arguments> broken() {
        return Stream.of(
                Arguments.of(Raw.document(), "a value without any field is neither a document nor an update"),
                Arguments.of(
                        Raw.document(Raw.embedded("$set", Raw.int32("a", 1)), Raw.embedded("$inc", Raw.int32("b", 1))),
                        "a value with the field '$inc' and without an _id is neither a document nor an update"),
                Arguments.of(Raw.document(Raw.int32("$set", 1)), "$set of an update must name at least one path"),
                Arguments.of(Raw.document(Raw.embedded("$unset")), "$unset of an update must name at least one path"),
                Arguments.of(
                        Raw.document(Raw.embedded("$truncate", Raw.int32("a", -1))),
                        "array 'a' cut to -1 elements: a length cannot be negative"),
                Arguments.of(
                        Raw.document(Raw.embedded("$truncate", Raw.int64("a", 1))),
                        "array 'a' cut to BsonInt64{value=1}: the length must be an int32"),
                Arguments.of(
                        Arrays.copyOf(Raw.document(Raw.int32("_id", 1)), 10),
                        "BSON is cut off: 14 bytes needed at byte 0 of 10"));
    }

    @ParameterizedTest
    @MethodSource("broken")
    void whatIsNeitherIsRefusedWithWords(byte[] value, String words) {
        assertEquals(
                words,
                assertThrows(ContractException.class, () -> Change.decode(value))
                        .getMessage());
    }
}
