package io.towpath.fold;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.record.BsonBytes;
import io.towpath.record.Change;
import io.towpath.support.Raw;
import java.util.List;
import org.bson.BsonDocument;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Which updates are written with operators when each is applied exactly once. */
class StepsTest {
    @ParameterizedTest
    @ValueSource(
            strings = {
                "{$set: {'readings.1800': {at: 1}}}",
                "{$set: {'readings.9': 1, 'readings.10': 1, total: 2}}",
                "{$set: {b: 1, 'a.z': 1, 'a.b.c': 2}}",
                "{$set: {Z: 1, a: 1, \u00e9: 1}, $unset: {b: '', 'c.d': ''}}",
                "{$truncate: {a: 1, 'b.c': 0}, $set: {c: 1}}"
            })
    void operatorsWhereTheySayItAll(String json) {
        assertTrue(Steps.of(update(json)).areOperators());
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "{$set: {z: 1, a: 1}}",
                "{$set: {'a.z': 1, 'a.b': 1}}",
                "{$set: {'10': 1, '9': 1}}",
                "{$set: {'01': 1, '2': 1}}",
                "{$set: {'a.2.t': 1}, $truncate: {a: 3}}",
                "{$truncate: {a: 1, 'a.0.b': 1}}",
                "{$set: {a: 1}, $unset: {a: ''}}",
                "{$set: {'': 1}}",
                "{$set: {'a.': 1}}",
                "{$set: {'a.$x': 1}}",
                "{$unset: {$x: ''}}"
            })
    void notWhereTheyWouldConflictOrReorder(String json) {
        assertFalse(Steps.of(update(json)).areOperators());
    }

    @ParameterizedTest
    @CsvSource({
        "9, 10, true",
        "10, 9, false",
        "10, 9a, true",
        "2, 10x, false",
        "00, 1, false",
        "a, b, true",
        "Z, a, true",
        "a, a, false",
        "10, 10, false",
        "15, 12, false",
        "12, 15, true",
        "0, 1, true",
        "1, 0, false",
        "01, 2, false",
        "1, 02, false",
        "/, 1, true",
        "1, :, true"
    })
    void fieldsAscendAsTheServerSortsThem(String last, String next, boolean ascends) {
        assertEquals(ascends, UpdateStep.ascends(last, next));
    }

    /** The server refuses them: the sink applies what was said last. */
    @Test
    void aPlaceThatIsNamedTwiceIsNotWrittenWithOperators() {
        byte[] twice = Raw.document(Raw.embedded("$set", Raw.int32("a", 1), Raw.int32("a", 2)));
        Steps steps = Steps.of((Change.Update) Change.decode(twice));
        assertFalse(steps.areOperators());
        assertFalse(steps.areInOrder());
    }

    /** The sink applies them apart from the rest where the rest needs a pipeline. */
    @Test
    void theSplicesAlone() {
        Steps steps =
                Steps.of(update("{$set: {a: 1}, $unset: {b: ''}, $splice: {l: [3, [0, 1, []]], m: [3, [1, 1, []]]}}"));
        assertEquals(
                List.of("l", "m"),
                steps.splices().all().stream().map(UpdateStep::path).toList());
    }

    private static Change.Update update(String json) {
        return (Change.Update) Change.decode(BsonBytes.of(BsonDocument.parse(json)));
    }
}
