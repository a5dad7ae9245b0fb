package io.towpath.sink.model;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.record.BsonBytes;
import io.towpath.record.Change;
import io.towpath.sink.RandomUpdates;
import io.towpath.support.Fuzz;
import io.towpath.support.LogModel;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.BsonValue;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** The total form, as a server would compute it, leaves what the record says. TotalUpdateServerTest asks a server. */
class TotalUpdateTest {
    @Test
    void whatTheSourceAllowedBecomesWhatTheRecordSays() {
        RandomUpdates random = new RandomUpdates(1);
        int compared = 0;
        for (int run = 0; run < Fuzz.times(6_000); run++) {
            byte[] document = random.document(1);
            Change.Update sorted = random.update(run % 4 == 0);
            List<String> names = new ArrayList<>(sorted.set().keySet());
            if (run % 2 == 0) Collections.reverse(names);
            BsonDocument set = new BsonDocument();
            names.forEach(name -> set.append(name, sorted.set().get(name)));
            Change.Update update = new Change.Update(set, sorted.unset(), sorted.truncations());
            LogModel model = new LogModel();
            model.apply(document);
            if (update.isEmpty() || !isAllowed(update, model)) continue;
            BsonDocument before = model.document().clone();
            model.apply(update.encode());
            assertArrayEquals(model.bytes(), BsonBytes.of(after(before, update)), () -> "%s by %s: %s"
                    .formatted(before, update, after(before, update)));
            compared++;
        }
        assertTrue(compared > Fuzz.times(1_500), "compared: " + compared);
    }

    private static BsonDocument after(BsonDocument before, Change.Update update) {
        BsonDocument stage = TotalUpdate.of(update).orElseThrow().get(0);
        return ServerExpressions.evaluated(stage.get("$replaceWith"), before).asDocument();
    }

    /** Whether the document can be one that the source updated so. */
    private static boolean isAllowed(Change.Update update, LogModel model) {
        boolean areArrays = update.truncations().stream()
                .allMatch(cut -> model.at(cut.path()) instanceof BsonArray
                        && Stream.concat(update.set().keySet().stream(), update.unset().stream())
                                .noneMatch(path -> (cut.path() + '.').startsWith(path + '.')));
        return areArrays
                && Stream.concat(
                                update.unset().stream(),
                                update.truncations().stream().map(Change.Truncation::path))
                        .noneMatch(path -> path.matches("|\\..*|.*\\.|.*\\.\\..*|(.*\\.)?00(\\..*)?"))
                && update.set().keySet().stream().allMatch(path -> leadsThroughIndexes(path, model));
    }

    private static boolean leadsThroughIndexes(String path, LogModel model) {
        String[] names = path.split("\\.", -1);
        BsonValue value = model.document();
        for (String name : names) {
            if (value instanceof BsonArray array) {
                if (!name.matches("0|[1-9]\\d*")) return false;
                value = Integer.parseInt(name) < array.size() ? array.get(Integer.parseInt(name)) : null;
            } else value = value instanceof BsonDocument fields ? fields.get(name) : null;
        }
        return true;
    }

    /** These the source did not say of such a document: it is a newer or an older one by now. */
    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "{_id: 1, a: [1]} | {$set: {'a.b': 2}} | {_id: 1, a: {b: 2}}",
                "{_id: 1, a: 5} | {$truncate: {a: 1}} | {_id: 1, a: []}",
                "{_id: 1, a: 5, b: 1} | {$truncate: {a: 0}} | {_id: 1, a: [], b: 1}",
                "{_id: 1} | {$truncate: {'a.l': 1}} | {_id: 1, a: {l: []}}",
                "{_id: 1, a: 5} | {$truncate: {a: 2}, $set: {'a.1': 6}} | {_id: 1, a: [null, 6]}",
                "{_id: 1, a: [1, 2, 3]} | {$truncate: {a: 2}, $set: {'a.1': 6}} | {_id: 1, a: [1, 6]}",
                "{_id: 1, a: [1, 2]} | {$unset: {'a.x': ''}, $set: {'a.0': 6}} | {_id: 1, a: [6, 2]}",
                "{_id: 1, a: {x: 1}} | {$unset: {'a.x': ''}, $set: {'a.0': 6}} | {_id: 1, a: {'0': 6}}",
                "{_id: 1, a: 5} | {$unset: {'a.x': '', 'a.0.y': ''}} | {_id: 1, a: 5}",
                "{_id: 1, a: [[1, 2]]} | {$unset: {'a.0.5': '', 'a.3': ''}} | {_id: 1, a: [[1, 2]]}",
                "{_id: 1, '': 1, $x: {y: 1}} | {$set: {'': 2, '$x.z': 3}, $unset: {'$x.y': ''}} | {_id: 1, '': 2, $x: {z: 3}}",
                "{_id: 1, a: {}} | {$set: {'a.$x': 1, 'a.': {}}} | {_id: 1, a: {$x: 1, '': {}}}",
                "{_id: 1} | {$unset: {'$x.$y': ''}} | {_id: 1}"
            })
    void anythingElseBecomesAContainerOfWhatIsWritten(String document, String update, String expected) {
        Change.Update read = (Change.Update) Change.decode(BsonBytes.of(BsonDocument.parse(update)));
        assertArrayEquals(
                BsonBytes.of(BsonDocument.parse(expected)), BsonBytes.of(after(BsonDocument.parse(document), read)));
    }

    @Test
    void anExpressionNestedTooDeepForTheServerIsNone() {
        Change.Update deep =
                new Change.Update(BsonDocument.parse("{'a%s': 1}".formatted(".a".repeat(60))), List.of(), List.of());
        assertEquals(Optional.empty(), TotalUpdate.of(deep));
        assertEquals(3, TotalUpdate.nesting(BsonDocument.parse("{a: 1, b: [{c: 1}], d: {}}")));
    }

    @ParameterizedTest
    @ValueSource(strings = {"0", "9", "10", "1499999"})
    void theseAreIndexes(String name) {
        assertTrue(PathNode.isIndex(name));
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "00", "01", "-1", "/", ":", "a", "1a", "1500000", "10000000", "99999999999"})
    void theseAreNone(String name) {
        assertFalse(PathNode.isIndex(name));
    }
}
