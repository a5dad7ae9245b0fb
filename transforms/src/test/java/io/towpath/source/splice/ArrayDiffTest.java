package io.towpath.source.splice;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.source.splice.ArrayDiff.Replacement;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import net.jqwik.api.Arbitraries;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.Combinators;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.Provide;
import net.jqwik.api.arbitraries.ListArbitrary;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Elements are numbers here; each stands for its hash. */
class ArrayDiffTest {
    private static final int LENGTH = 1_000;

    static Stream<Arguments> operators() {
        List<Integer> before = IntStream.range(0, LENGTH).boxed().toList();
        List<Integer> last = before.subList(1, LENGTH);
        List<Integer> first = before.subList(0, LENGTH - 1);
        List<Integer> pulled =
                before.stream().filter(n -> n != 3 && n != 4 && n % 333 != 5).toList();
        List<Integer> two = List.of(-1, -2);
        return Stream.of(
                Arguments.of(
                        "$push $slice: -n", joined(last, List.of(-1)), List.of(cut(0, 1, 0), put(1000, 0, 999, 1))),
                Arguments.of(
                        "$push $position: 0, $slice: n",
                        joined(List.of(-1), first),
                        List.of(put(0, 0, 0, 1), cut(999, 1, 1000))),
                Arguments.of("$pop: -1", last, List.of(cut(0, 1, 0))),
                Arguments.of("$pop: 1", first, List.of(cut(999, 1, 999))),
                Arguments.of("$pull", pulled, List.of(cut(3, 3, 3), cut(338, 1, 335), cut(671, 1, 667))),
                Arguments.of(
                        "$push $each $position $slice",
                        joined(before.subList(0, 7), two, before.subList(7, LENGTH - 2)),
                        List.of(put(7, 0, 7, 2), cut(998, 2, 1000))),
                Arguments.of(
                        "half of it",
                        joined(
                                before.subList(500, LENGTH),
                                IntStream.range(-500, 0).boxed().toList()),
                        List.of(cut(0, 500, 0), put(1000, 0, 500, 500))),
                Arguments.of(
                        "an element replaced",
                        joined(before.subList(0, 7), List.of(-1), before.subList(8, LENGTH)),
                        List.of(put(7, 1, 7, 1))),
                Arguments.of(
                        "two replaced, with one between",
                        joined(before.subList(0, 7), List.of(-1, 8, -2), before.subList(10, LENGTH)),
                        List.of(put(7, 1, 7, 1), put(9, 1, 9, 1))),
                Arguments.of("moved to the end", joined(last, List.of(0)), List.of(cut(0, 1, 0), put(1000, 0, 999, 1))),
                Arguments.of("nothing", before, List.of()));
    }

    private static Replacement cut(int at, int deleted, int from) {
        return new Replacement(at, deleted, from, 0);
    }

    private static Replacement put(int at, int deleted, int from, int inserted) {
        return new Replacement(at, deleted, from, inserted);
    }

    private static List<Integer> joined(List<Integer> first, List<Integer> second) {
        return Stream.concat(first.stream(), second.stream()).toList();
    }

    private static List<Integer> joined(List<Integer> first, List<Integer> second, List<Integer> third) {
        return joined(joined(first, second), third);
    }

    @ParameterizedTest(name = "{0}")
    @MethodSource("operators")
    void whatAnOperatorDoesIsFound(String operator, List<Integer> now, List<Replacement> expected) {
        List<Integer> before = IntStream.range(0, LENGTH).boxed().toList();
        assertEquals(now, applied(before, now, expected), operator);
        assertEquals(Optional.of(expected), ArrayDiff.between(hashes(before), hashes(now)));
    }

    @Test
    void arraysWithNothingInCommonAreGivenUp() {
        List<Integer> before = IntStream.range(0, LENGTH).boxed().toList();
        List<Integer> now = IntStream.range(-LENGTH, 0).boxed().toList();
        assertEquals(Optional.empty(), ArrayDiff.between(hashes(before), hashes(now)));
    }

    @Test
    void soManyEditsAreTooMany() {
        List<Integer> before =
                IntStream.range(0, 2 * ArrayDiff.MOST_EDITS).boxed().toList();
        List<Integer> now = before.stream().map(n -> n % 2 == 0 ? -n - 1 : n).toList();
        assertEquals(
                ArrayDiff.MOST_EDITS,
                ArrayDiff.between(hashes(before), hashes(now)).orElseThrow().size());
        List<Integer> longer = joined(before, List.of(10_000, 10_001));
        assertEquals(Optional.empty(), ArrayDiff.between(hashes(longer), hashes(joined(now, List.of(20_000, 10_001)))));
    }

    @Test
    void anUnknownElementEqualsNothing() {
        ElementHashes before = hashes(List.of(1, 2, 3));
        before.setUnknown(1);
        ElementHashes zero = new ElementHashes(1);
        zero.append(0, 0);
        assertTrue(!before.matches(1, zero, 0));
        assertEquals(Optional.of(List.of(put(1, 1, 1, 1))), ArrayDiff.between(before, hashes(List.of(1, 2, 3))));
    }

    /** An edit of any array: from a place on, so many elements are gone, and these are in their place. */
    record Edit(int at, int deleted, List<Integer> inserted) {}

    @Provide
    Arbitrary<List<Integer>> arrays() {
        return Arbitraries.of(1, 3, 1_000).flatMap(kinds -> numbers(kinds).ofMaxSize(200));
    }

    @Provide
    Arbitrary<List<Edit>> edits() {
        return Combinators.combine(
                        Arbitraries.integers().between(0, 200),
                        Arbitraries.integers().between(0, 3),
                        Arbitraries.of(3, 1_000).flatMap(kinds -> numbers(kinds).ofMaxSize(3)))
                .as(Edit::new)
                .list()
                .ofMaxSize(4);
    }

    /** Few distinct elements, so that many are equal. */
    private static ListArbitrary<Integer> numbers(int kinds) {
        return Arbitraries.integers().between(0, kinds - 1).list();
    }

    @Property
    void theStretchesMakeTheArrayOfTheOneBefore(
            @ForAll("arrays") List<Integer> before, @ForAll("edits") List<Edit> edits) {
        List<Integer> now = new ArrayList<>(before);
        for (Edit edit : edits) {
            int at = Math.min(now.size(), edit.at());
            List<Integer> replacement = now.subList(at, Math.min(now.size(), at + edit.deleted()));
            replacement.clear();
            replacement.addAll(edit.inserted());
        }
        List<Replacement> replacements =
                ArrayDiff.between(hashes(before), hashes(now)).orElse(null);
        if (replacements == null) return;
        requireInOrder(replacements);
        assertEquals(now, applied(before, now, replacements));
    }

    private static void requireInOrder(List<Replacement> replacements) {
        int at = -1;
        int from = -1;
        for (Replacement replacement : replacements) {
            assertTrue(replacement.at() > at || replacement.from() > from, replacements::toString);
            assertTrue(replacement.deleted() + replacement.inserted() > 0, replacements::toString);
            at = replacement.at() + replacement.deleted();
            from = replacement.from() + replacement.inserted();
        }
    }

    private static List<Integer> applied(List<Integer> before, List<Integer> now, List<Replacement> replacements) {
        List<Integer> result = new ArrayList<>();
        int at = 0;
        for (Replacement replacement : replacements) {
            result.addAll(before.subList(at, replacement.at()));
            assertEquals(replacement.from(), result.size());
            result.addAll(now.subList(replacement.from(), replacement.from() + replacement.inserted()));
            at = replacement.at() + replacement.deleted();
        }
        result.addAll(before.subList(at, before.size()));
        return result;
    }

    private static ElementHashes hashes(List<Integer> numbers) {
        ElementHashes hashes = new ElementHashes(1);
        numbers.forEach(number -> hashes.append(number, ~number));
        return hashes;
    }
}
