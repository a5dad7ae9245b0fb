package io.towpath.source.copy;

import io.towpath.source.progress.CopyShare;
import io.towpath.source.progress.Ledger;
import io.towpath.source.progress.Progress;
import java.time.Duration;
import java.util.Collections;
import java.util.SortedMap;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.connect.storage.OffsetStorageReader;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What a task knows of the connector's other tasks: only what they have committed to the connector's offsets. A check reads those offsets to
 * the end of their topic, and waits for transactions that are storing some.
 */
final class OtherTasks {
    private static final Logger LOGGER = LoggerFactory.getLogger(OtherTasks.class);
    private static final long PAUSE_NS = Duration.ofSeconds(1).toNanos();
    /** So many times as long as a check takes is the pause after it, at least. */
    private static final int PAUSES_A_CHECK = 20;
    /** Both are shorter while the task only waits, as the stream also does. */
    private static final int WAITING = 4;

    private static final long LOG_PAUSE_NS = Duration.ofMinutes(1).toNanos();

    private final Progress progress;
    private final Ledger ledger;
    private final CopyShare share;
    private final OffsetStorageReader offsets;
    private long nextCheckNs = System.nanoTime();
    private boolean haveEnded;
    private long nextLogNs = System.nanoTime();

    OtherTasks(Progress progress, CopyShare share, OffsetStorageReader offsets) {
        this.progress = progress;
        this.ledger = progress.ledger();
        this.share = share;
        this.offsets = offsets;
    }

    /** Whether it is time for a check. */
    boolean isDue() {
        return !share.isWhole() && System.nanoTime() >= nextCheckNs;
    }

    /**
     * Updates the ledger: for the first task by how far the others are, for the others by plans. Returns whether the round continues.
     *
     * @param isWaiting whether the task has nothing to read
     */
    boolean check(boolean isWaiting) {
        long began = System.nanoTime();
        boolean continues = share.isFirst() || ledger.followFirst(offsets);
        if (share.isFirst()) follow();
        long now = System.nanoTime();
        long pause = Math.max(PAUSE_NS, PAUSES_A_CHECK * (now - began));
        nextCheckNs = now + (isWaiting ? pause / WAITING : pause);
        if (share.isFirst()) report();
        return continues;
    }

    private void follow() {
        // before their ranges, which then are all that they have read in the round
        haveEnded = IntStream.range(1, share.tasks())
                .allMatch(task -> progress.partitions().ended(task, offsets) >= ledger.round());
        ledger.followOthers(share, offsets);
    }

    /** Whether the other tasks have ended the round: what they have read in it is in the ledger. */
    boolean haveEnded() {
        return share.isWhole() || haveEnded;
    }

    /** Says what the first task waits for, once it has read its own share. */
    private void report() {
        SortedMap<Integer, Long> open =
                ledger.rows().isCopied(share) ? ledger.rows().open(share) : Collections.emptySortedMap();
        String waitsFor = open.entrySet().stream()
                .map(entry -> "%d ranges of task %d".formatted(entry.getValue(), entry.getKey()))
                .collect(Collectors.joining(", "));
        progress.metrics().waitsFor(waitsFor);
        if (waitsFor.isEmpty() || System.nanoTime() < nextLogNs) return;
        nextLogNs = System.nanoTime() + LOG_PAUSE_NS;
        LOGGER.info("the first task of {} has copied its share and waits for {}", progress.name(), waitsFor);
    }
}
