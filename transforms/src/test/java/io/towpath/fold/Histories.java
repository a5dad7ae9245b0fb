package io.towpath.fold;

import io.towpath.record.BsonBytes;
import io.towpath.record.Change;
import io.towpath.record.Splice;
import io.towpath.support.LogModel;
import java.util.ArrayList;
import java.util.List;
import net.jqwik.api.Arbitraries;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.Combinators;
import net.jqwik.api.Tuple;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonNull;
import org.bson.BsonString;
import org.bson.BsonValue;

/** Histories of one document, as a source makes them: each change is one that the document allowed when it was made. */
public final class Histories {
    private static final BsonDocument FIRST = BsonDocument.parse(
            "{_id: 1, a: {b: 1, l: [1, {b: 1}, 3, 4]}, l: [{a: {z: 1}}, 2, [5], 4, 5], z: 'text', '1': {}, m: []}");

    private Histories() {}

    public enum Kind {
        SET,
        UNSET,
        TRUNCATE,
        SPLICE
    }

    /** What one place shall become; skipped where the document does not allow it. */
    public record Place(Kind kind, List<String> names, int at, int count, BsonValue value) {
        String path() {
            return String.join(".", names);
        }
    }

    /** An update of some places; of none: the document is replaced, or deleted. */
    public record Attempt(List<Place> places, boolean isDelete, BsonDocument document) {}

    public static Arbitrary<List<Attempt>> attempts() {
        Arbitrary<List<Place>> places = place().list().ofMinSize(1).ofMaxSize(5);
        Arbitrary<List<Place>> mostlySome =
                Arbitraries.frequencyOf(Tuple.of(12, places), Tuple.of(1, Arbitraries.just(List.of())));
        Arbitrary<BsonDocument> documents = Arbitraries.of(FIRST, BsonDocument.parse("{_id: 1, l: [1, 2, 3]}"));
        return Combinators.combine(mostlySome, Arbitraries.of(false, false, true), documents)
                .as(Attempt::new)
                .list()
                .ofMaxSize(8);
    }

    private static Arbitrary<Place> place() {
        Arbitrary<List<String>> names = Arbitraries.of("a", "l", "b", "z", "m", "0", "1", "10", "\u00e9")
                .list()
                .ofMinSize(1)
                .ofMaxSize(3);
        return Combinators.combine(
                        Arbitraries.of(
                                Kind.SET, Kind.SET, Kind.SET, Kind.UNSET, Kind.TRUNCATE, Kind.TRUNCATE, Kind.SPLICE),
                        Arbitraries.frequencyOf(
                                Tuple.of(1, names),
                                Tuple.of(1, Arbitraries.of(List.of("l"), List.of("a", "l"), List.of("m")))),
                        Arbitraries.integers().between(0, 6),
                        Arbitraries.integers().between(0, 3),
                        value())
                .as(Place::new);
    }

    private static Arbitrary<BsonValue> value() {
        return Arbitraries.of(
                new BsonInt32(7),
                new BsonString("text"),
                BsonNull.VALUE,
                BsonDocument.parse("{z: 1, a: {b: 2}}"),
                BsonDocument.parse("{l: [1, 2]}"),
                BsonArray.parse("[6, {a: 1}, 8, 9]"),
                new BsonArray());
    }

    /** The first document's bytes, or null, and the changes that follow. */
    public static List<byte[]> values(List<Attempt> attempts, boolean isKnown) {
        LogModel document = new LogModel();
        List<byte[]> values = new ArrayList<>();
        document.apply(first());
        if (isKnown) values.add(first());
        for (Attempt attempt : attempts) {
            byte[] value = value(attempt, document);
            if (value == null && !attempt.places().isEmpty()) continue;
            values.add(value);
            document.apply(value);
        }
        return values;
    }

    public static byte[] first() {
        return BsonBytes.of(FIRST);
    }

    private static byte[] value(Attempt attempt, LogModel document) {
        if (attempt.places().isEmpty()) return attempt.isDelete() ? null : BsonBytes.of(attempt.document());
        return document.document() == null ? null : update(attempt.places(), document);
    }

    /** Null when the document allows none of it. */
    private static byte[] update(List<Place> places, LogModel document) {
        BsonDocument set = new BsonDocument();
        List<String> unset = new ArrayList<>();
        List<Change.Truncation> cuts = new ArrayList<>();
        List<Splice> splices = new ArrayList<>();
        List<String> taken = new ArrayList<>();
        for (Place place : places) {
            String path = place.path();
            BsonValue now = document.at(path);
            if (taken.stream().anyMatch(other -> isWithin(path, other) || isWithin(other, path))) continue;
            boolean isKept = cuts.stream().allMatch(cut -> isKept(place.names(), cut));
            if (!isKept
                    || place.kind() == Kind.TRUNCATE && set.keySet().stream().anyMatch(other -> isWithin(other, path)))
                continue;
            int before = set.size() + unset.size() + splices.size();
            switch (place.kind()) {
                case SET -> {
                    if (allows(document.document(), place.names())) set.append(path, place.value());
                }
                case UNSET -> {
                    if (now != null && !(parent(document, place) instanceof BsonArray)) unset.add(path);
                }
                case TRUNCATE -> {
                    if (now instanceof BsonArray array && place.at() < array.size())
                        cuts.add(new Change.Truncation(path, place.at()));
                }
                case SPLICE -> {
                    if (now instanceof BsonArray array && Splice.canName(path)) splices.add(splice(path, array, place));
                }
            }
            if (set.size() + unset.size() + splices.size() > before) taken.add(path);
        }
        Change.Update update = new Change.Update(set, unset, cuts, splices);
        return update.isEmpty() ? null : update.encode();
    }

    /** Whether the place is not in an array that is cut, or in what is left of it. */
    private static boolean isKept(List<String> names, Change.Truncation cut) {
        int depth = cut.path().split("\\.").length;
        if (!isWithin(String.join(".", names), cut.path())) return !isWithin(cut.path(), String.join(".", names));
        return names.size() > depth
                && names.get(depth).matches("\\d+")
                && Integer.parseInt(names.get(depth)) < cut.newSize();
    }

    private static boolean isWithin(String path, String other) {
        return (path + '.').startsWith(other + '.');
    }

    private static BsonValue parent(LogModel document, Place place) {
        List<String> above = place.names().subList(0, place.names().size() - 1);
        return above.isEmpty() ? document.document() : document.at(String.join(".", above));
    }

    /** Whether the field can be set: a change event names no field of a document that is not there. */
    private static boolean allows(BsonValue value, List<String> names) {
        if (names.isEmpty()) return true;
        List<String> below = names.subList(1, names.size());
        if (value instanceof BsonDocument fields) return below.isEmpty() || allows(fields.get(names.get(0)), below);
        if (!(value instanceof BsonArray array) || !names.get(0).matches("\\d+")) return false;
        int index = Integer.parseInt(names.get(0));
        return index < array.size() ? allows(array.get(index), below) : below.isEmpty();
    }

    private static Splice splice(String path, BsonArray array, Place place) {
        int at = Math.min(place.at(), array.size());
        int gone = Math.min(place.count(), array.size() - at);
        BsonArray inserted = new BsonArray();
        for (int i = place.at() % 3; i > 0; i--) inserted.add(place.value());
        List<Splice.Edit> edits = new ArrayList<>();
        edits.add(new Splice.Edit(at, gone, bytes(inserted)));
        if (at + gone + 1 < array.size() && place.count() % 2 == 0)
            edits.add(new Splice.Edit(array.size() - 1, 1, bytes(new BsonArray())));
        return new Splice(path, array.size(), edits);
    }

    private static byte[] bytes(BsonArray elements) {
        BsonDocument named = new BsonDocument();
        for (int i = 0; i < elements.size(); i++) named.append(Integer.toString(i), elements.get(i));
        return BsonBytes.of(named);
    }
}
