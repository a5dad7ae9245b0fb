package io.towpath.support;

import java.time.Duration;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;

/**
 * Runs many random cases. The environment variable {@value #SEED} begins another row of cases (1 when it is not set), and
 * {@value #TIMES} makes a row so many times as long; a row by day, without it, has a third. What failed is named with its seed and number,
 * and can be run again by itself.
 */
public final class Fuzz {
    public static final String SEED = "TOWPATH_FUZZ_SEED";
    public static final String TIMES = "TOWPATH_FUZZ_TIMES";

    private static final Duration LONGEST = Duration.ofSeconds(10);

    /** One case; returns what became of it, to be counted. */
    public interface Case {
        String run(Random random) throws Exception;
    }

    private Fuzz() {}

    public static long seed() {
        return Long.parseLong(System.getenv().getOrDefault(SEED, "1"));
    }

    public static int times(int cases) {
        int times = Integer.parseInt(System.getenv().getOrDefault(TIMES, "1"));
        return times > 1 ? cases * times : (cases + 2) / 3;
    }

    /** Whether this is no run by day, which leaves out what takes long. */
    public static boolean isNight() {
        return times(1) > 1;
    }

    /** Returns what became of the cases: outcome → how many. */
    public static Map<String, Integer> run(String what, int cases, Case test) {
        return run(what, cases, LONGEST, test);
    }

    /** As above; fails as well when a case takes longer than {@code longest}. */
    public static Map<String, Integer> run(String what, int cases, Duration longest, Case test) {
        long seed = seed();
        Map<String, Integer> outcomes = new TreeMap<>();
        for (int i = 0; i < times(cases); i++) {
            long began = System.nanoTime();
            try {
                outcomes.merge(test.run(new Random(seed * 1_000_000_007L + i)), 1, Integer::sum);
            } catch (Exception | StackOverflowError | OutOfMemoryError | AssertionError error) {
                throw new AssertionError("%s, case %d of %s=%d: %s".formatted(what, i, SEED, seed, error), error);
            }
            if (System.nanoTime() - began > longest.toNanos())
                throw new AssertionError(
                        "%s, case %d of %s=%d took longer than %s".formatted(what, i, SEED, seed, longest));
        }
        System.out.printf("fuzz: %s: %d cases, %s=%d: %s%n", what, times(cases), SEED, seed, outcomes);
        return outcomes;
    }
}
