package io.towpath.source.progress;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.source.progress.RoundsWorld.Broken;
import io.towpath.source.progress.RoundsWorld.Fault;
import io.towpath.source.progress.RoundsWorld.Size;
import io.towpath.support.Fuzz;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.stream.Stream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Every interleaving of a source, a copy in rounds, a stream and kills, in small worlds. */
class RoundsTest {
    private static final Size BY_ID = new Size(false, false, 1, 2, 3, 1, false);
    private static final Size SHORT = new Size(false, false, 1, 2, 2, 1, false);
    private static final Size ONE_RANGE = new Size(false, true, 1, 2, 3, 1, false);
    private static final Size TASKS = new Size(false, false, 2, 2, 2, 1, false);
    private static final Size NATURAL = new Size(true, false, 1, 2, 2, 1, false);
    private static final Size NATURAL_SHORT = new Size(true, false, 1, 1, 2, 1, false);
    private static final Size NATURAL_LONG = new Size(true, false, 1, 3, 2, 1, false);
    private static final Size NATURAL_ONE_RANGE = new Size(true, true, 1, 2, 2, 1, false);
    private static final Size RESNAPSHOT = new Size(false, false, 1, 2, 1, 2, true);
    private static final Size RESNAPSHOT_ROUNDS = new Size(false, false, 1, 2, 2, 2, true);
    private static final Size NATURAL_ANEW = new Size(true, false, 1, 2, 2, 1, true);

    /** By day, one short world for each order is explored; the others, which take two minutes, by night. */
    private static final boolean IS_NIGHT = Fuzz.isNight();

    static Stream<Size> sizes() {
        Stream<Size> longer =
                Stream.of(BY_ID, NATURAL, ONE_RANGE, NATURAL_ONE_RANGE, TASKS, NATURAL_ANEW, RESNAPSHOT_ROUNDS);
        return Stream.concat(Stream.of(SHORT, NATURAL_SHORT, RESNAPSHOT), IS_NIGHT ? longer : Stream.of());
    }

    @ParameterizedTest
    @MethodSource("sizes")
    void theLogBecomesTheSource(Size size) {
        assertTrue(explore(size, null) > 1_000);
    }

    static Stream<Arguments> faults() {
        Stream<Arguments> longest = Stream.of(
                Arguments.of(NATURAL_LONG, Fault.REREAD_STORES_NO_POSITION),
                Arguments.of(NATURAL, Fault.ROW_IS_READ_BEFORE_THE_ROUND),
                Arguments.of(TASKS, Fault.ENDS_ARE_READ_LAST),
                Arguments.of(TASKS, Fault.ENDED_TASK_READS));
        Stream<Arguments> others = Stream.of(
                Arguments.of(BY_ID, Fault.UNREAD_IS_EMITTED),
                Arguments.of(ONE_RANGE, Fault.UNREAD_IS_EMITTED),
                Arguments.of(BY_ID, Fault.EARLIER_INSTEAD_OF_UP_TO),
                Arguments.of(NATURAL, Fault.EARLIER_INSTEAD_OF_UP_TO),
                Arguments.of(NATURAL, Fault.PENDING_KEY_IS_FORGOTTEN),
                Arguments.of(BY_ID, Fault.ROW_IS_READ_BEFORE_THE_ROUND),
                Arguments.of(TASKS, Fault.OTHERS_ARE_NOT_AWAITED),
                Arguments.of(BY_ID, Fault.REQUEST_IS_ANSWERED));
        return IS_NIGHT ? Stream.concat(others, longest) : others;
    }

    @ParameterizedTest
    @MethodSource("faults")
    void aFaultIsFound(Size size, Fault fault) {
        assertThrows(Broken.class, () -> explore(size, fault));
    }

    /** Returns how many states there are. */
    private static int explore(Size size, Fault fault) {
        Set<List<Object>> seen = new HashSet<>();
        Deque<RoundsWorld> open = new ArrayDeque<>();
        open.add(new RoundsWorld(size, fault));
        boolean isOver = false;
        while (!open.isEmpty()) {
            RoundsWorld world = fault == null ? open.removeLast() : open.removeFirst(); // the shortest way to a fault
            if (!seen.add(world.key())) continue;
            isOver = isOver || world.isOver();
            open.addAll(world.next());
        }
        assertTrue(isOver, "no way leads to the end");
        return seen.size();
    }
}
