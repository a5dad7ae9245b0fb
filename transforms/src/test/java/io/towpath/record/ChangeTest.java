package io.towpath.record;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.towpath.support.Raw;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Stream;
import org.bson.BsonDocument;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.CsvSource;
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
    void splicesKeepTheirBytes() {
        byte[] edit = Raw.array("1", Raw.int32("0", 1), Raw.int32("1", 2), Raw.array("2", Raw.everyType()));
        byte[] value = Raw.document(
                Raw.embedded("$set", Raw.int32("a", 1)),
                Raw.embedded(
                        "$splice",
                        Raw.array("b.list", Raw.int32("0", 4), edit),
                        Raw.array(
                                "c",
                                Raw.int32("0", 0),
                                Raw.array("1", Raw.int32("0", 0), Raw.int32("1", 0), Raw.array("2")))));
        Change.Update update = assertInstanceOf(Change.Update.class, Change.decode(value));
        assertEquals(
                new Splice("b.list", 4, List.of(new Splice.Edit(1, 2, Raw.document(Raw.everyType())))),
                update.splices().get(0));
        assertEquals(4 - 2 + Raw.everyType().length, update.splices().get(0).newLength());
        assertArrayEquals(value, update.encode());
        assertArrayEquals(
                Raw.document(Raw.embedded("$set", Raw.int32("a", 1))),
                update.withoutSplices().encode());
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            quoteCharacter = '"',
            value = {
                "{$splice: {l: 1}} | a splice of array 'l' that is not [length, [at, deleted, [inserted, …]], …]",
                "{$splice: {l: []}} | a splice of array 'l' that is not [length, [at, deleted, [inserted, …]], …]",
                "{$splice: {l: [1.0, [0, 1, []]]}} | a splice of array 'l' that is not [length, [at, deleted, [inserted, …]], …]",
                "{$splice: {l: [1, [0, 1]]}} | a splice of array 'l' that is not [length, [at, deleted, [inserted, …]], …]",
                "{$splice: {l: [1, [0, 1, [], 1]]}} | a splice of array 'l' that is not [length, [at, deleted, [inserted, …]], …]",
                "{$splice: {l: [1, [0, 1, {}]]}} | a splice of array 'l' that is not [length, [at, deleted, [inserted, …]], …]",
                "{$splice: {l: [1]}} | a splice of array 'l' without any edit",
                "{$splice: {l: [-1, [0, 0, []]]}} | array 'l' cannot have -1 elements",
                "{$splice: {l: [2147483647, [0, 0, []]]}} | array 'l' cannot have 2147483647 elements",
                "{$splice: {l: [2, [1, 2, []]]}} | a splice of array 'l' removes 2 of its 2 elements from 1 on, after 0",
                "{$splice: {l: [2, [3, 0, []]]}} | a splice of array 'l' removes 0 of its 2 elements from 3 on, after 0",
                "{$splice: {l: [2, [-1, 0, []]]}} | a splice of array 'l' removes 0 of its 2 elements from -1 on, after 0",
                "{$splice: {l: [2, [0, -1, []]]}} | a splice of array 'l' removes -1 of its 2 elements from 0 on, after 0",
                "{$splice: {l: [3, [1, 1, []], [1, 1, []]]}} | a splice of array 'l' removes 1 of its 3 elements from 1 on, after 2",
                "{$splice: {'l.0': [1, [0, 1, []]]}} | a splice of 'l.0', which is no place by names of fields",
                "{$splice: {'l.': [1, [0, 1, []]]}} | a splice of 'l.', which is no place by names of fields",
                "{$splice: {'$l': [1, [0, 1, []]]}} | a splice of '$l', which is no place by names of fields",
                "{$set: {l: 1}, $splice: {l: [1, [0, 1, []]]}} | an update that changes 'l' in two ways, one of them a splice",
                "{$unset: {'l.3': ''}, $splice: {l: [1, [0, 1, []]]}} | an update that changes 'l.3' in two ways, one of them a splice",
                "{$truncate: {l: 1}, $splice: {'l.a': [1, [0, 1, []]]}} | an update that changes 'l.a' in two ways, one of them a splice",
                "{$splice: {l: [1, [0, 1, []]], 'l.a': [1, [0, 1, []]]}} | an update that changes 'l.a' in two ways, one of them a splice"
            })
    void aSpliceThatCannotBeIsRefusedWithWords(String json, String words) {
        byte[] value = BsonBytes.of(BsonDocument.parse(json));
        assertEquals(
                words,
                assertThrows(ContractException.class, () -> Change.decode(value))
                        .getMessage());
    }

    @Test
    void editsThatDifferInAnythingAreNotEqual() {
        byte[] none = Raw.document();
        Splice.Edit edit = new Splice.Edit(1, 2, none);
        assertEquals(edit, new Splice.Edit(1, 2, none.clone()));
        assertEquals(edit.hashCode(), new Splice.Edit(1, 2, none.clone()).hashCode());
        for (Splice.Edit other : List.of(
                new Splice.Edit(0, 2, none),
                new Splice.Edit(1, 1, none),
                new Splice.Edit(1, 2, Raw.document(Raw.int32("0", 1))))) assertNotEquals(edit, other);
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
