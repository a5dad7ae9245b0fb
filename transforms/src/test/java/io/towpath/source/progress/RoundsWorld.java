package io.towpath.source.progress;

import io.towpath.record.BsonOrder;
import io.towpath.record.CanonicalKey;
import io.towpath.record.ClusterTime;
import io.towpath.support.Raw;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.OffsetStorageReader;

/**
 * A state of a small world: the source's history, the log, the committed offsets, and what the tasks know besides. Each step is a transaction,
 * or changes only what a task knows. The decisions are those of the real classes, made again from the offsets in each step.
 */
final class RoundsWorld {
    /**
     * What a world is like, and how much of it is explored.
     *
     * @param isAnew whether the copy may start again, which counts as a kill: by _id with a resnapshot, once the initial copy is over
     */
    record Size(
            boolean isNatural, boolean isOneRange, int tasks, int operations, int rounds, int kills, boolean isAnew) {}

    /** Mistakes that an explorer must find. */
    enum Fault {
        /** Changes of documents that are not read yet are emitted. */
        UNREAD_IS_EMITTED,
        /** A change at the time of its row is emitted. */
        EARLIER_INSTEAD_OF_UP_TO,
        PENDING_KEY_IS_FORGOTTEN,
        ROW_IS_READ_BEFORE_THE_ROUND,
        REREAD_STORES_NO_POSITION,
        /** The first task does not wait for the others. */
        OTHERS_ARE_NOT_AWAITED,
        /** The first task reads how far the others are before it reads whether they have ended. */
        ENDS_ARE_READ_LAST,
        /** A task reads again in a round that it has ended. */
        ENDED_TASK_READS,
        /** A re-read request is answered while the initial copy continues. */
        REQUEST_IS_ANSWERED
    }

    static final class Broken extends RuntimeException {
        private static final long serialVersionUID = 1;

        Broken(String message) {
            super(message);
        }
    }

    /** By its record id, and each operation on it since it was inserted. */
    record Document(int recordId, String operations) {}

    private static final List<Integer> IDS = List.of(1, 2);
    private static final byte[][] KEYS = {null, key(1), key(2)};
    private static final Partitions PARTITIONS = new Partitions("p");
    private static final CopyShare FIRST = new CopyShare(0, 2);
    /** Its first range is the first task's, and its second the second one's. */
    private static final String NAMESPACE = Stream.of("a.a", "a.b")
            .filter(namespace -> FIRST.has(namespace, 0))
            .findFirst()
            .orElseThrow();

    /** Of partitions, which {@link #offsets} and keys of states are full of. */
    private static final Map<Map<String, ?>, String> NAMES = new HashMap<>();

    private static final int START = 1;

    private final Size size;
    private final Fault fault;
    /** The source after each cluster time, from {@link #START} on; and which document the operation at that time changed, and how. */
    private final List<Map<Integer, Document>> source;

    private final List<String> operations;
    /** What a reader of the log has. */
    private final Map<Integer, String> log;

    private final Map<Integer, Integer> logTimes;
    private final Map<String, Map<String, Object>> offsets;
    /** The stream's stored position, and that in memory: every event up to it is passed. */
    private int stored;

    private int position;
    private int kills;
    /** The first task's: what it has seen of the second. */
    private Map<String, Object> seenRange;

    private long readEnd;
    private long seenEnd;
    /** The offsets that the second task reads a round with; null while it reads none. */
    private Map<String, Map<String, Object>> share;

    RoundsWorld(Size size, Fault fault) {
        this.size = size;
        this.fault = fault;
        source = new ArrayList<>(List.of(Map.of(), Map.of(1, new Document(1, "+"), 2, new Document(2, "+"))));
        operations = new ArrayList<>(List.of("", ""));
        log = new TreeMap<>();
        logTimes = new TreeMap<>();
        offsets = new TreeMap<>();
        stored = -1;
        Ledger ledger = new Ledger(PARTITIONS, reader(offsets));
        ledger.begin("x", time(START), List.of(NAMESPACE));
        List<byte[]> bounds = size.isOneRange ? List.of() : List.of(size.isNatural ? RecordIds.position(1) : KEYS[2]);
        Optional<RecordIds> recordIds =
                size.isNatural ? Optional.of(new RecordIds("m", "t", time(START))) : Optional.empty();
        commit(List.of(ledger.rootRecord(), ledger.plan(NAMESPACE, new RangePlan(bounds, 2, 2, 7, recordIds))));
        position = START - 1;
    }

    private RoundsWorld(RoundsWorld other) {
        size = other.size;
        fault = other.fault;
        source = new ArrayList<>(other.source);
        operations = new ArrayList<>(other.operations);
        log = new TreeMap<>(other.log);
        logTimes = new TreeMap<>(other.logTimes);
        offsets = new TreeMap<>(other.offsets);
        stored = other.stored;
        position = other.position;
        kills = other.kills;
        seenRange = other.seenRange;
        readEnd = other.readEnd;
        seenEnd = other.seenEnd;
        share = other.share == null ? null : new TreeMap<>(other.share);
    }

    /** Two states with the same key have the same future. */
    List<Object> key() {
        return Arrays.asList(
                source.get(now()),
                operations,
                log,
                logTimes,
                offsets,
                stored,
                position,
                kills,
                seenRange,
                readEnd,
                seenEnd,
                share);
    }

    interface Step {
        void take(RoundsWorld world);
    }

    /** Every state that one step leads to. */
    List<RoundsWorld> next() {
        List<Step> steps = new ArrayList<>();
        addOperations(steps);
        Ledger ledger = first();
        check(ledger);
        if (ledger.isCopying()) addCopy(ledger, steps);
        else addStream(ledger, steps);
        if (size.tasks > 1) addSecond(steps);
        if (kills < size.kills) {
            steps.add(RoundsWorld::killFirst);
            if (!ledger.isCopying() && position >= START)
                steps.add(world -> {
                    world.heartbeat();
                    world.killFirst();
                });
            if (share != null) steps.add(RoundsWorld::killSecond);
            if (size.isAnew && size.isNatural && ledger.isCopying()) steps.add(RoundsWorld::copyAnew);
            if (size.isAnew && !size.isNatural && ledger.isStreaming()) steps.add(RoundsWorld::resnapshot);
        }
        List<RoundsWorld> worlds = new ArrayList<>();
        for (Step step : steps) {
            RoundsWorld world = new RoundsWorld(this);
            step.take(world);
            worlds.add(world);
        }
        return worlds;
    }

    // the source

    private int now() {
        return source.size() - 1;
    }

    private void addOperations(List<Step> steps) {
        if (now() - START >= size.operations) return;
        for (int id : IDS) {
            Document document = source.get(now()).get(id);
            if (document == null) steps.add(world -> world.change(id, "+"));
            else List.of("u", "-").forEach(operation -> steps.add(world -> world.change(id, operation)));
        }
    }

    private void change(int id, String operation) {
        Map<Integer, Document> after = new HashMap<>(source.get(now()));
        Document before = after.get(id);
        int time = now() + 1;
        switch (operation) {
            case "+" -> after.put(id, new Document(time + 1, "+" + time));
            case "u" -> after.put(id, new Document(before.recordId, before.operations + "u" + time));
            default -> after.remove(id);
        }
        source.add(after);
        operations.add(id + operation);
    }

    private String asOf(int time, int id) {
        Document document = source.get(time).get(id);
        return document == null ? null : document.operations;
    }

    // the copy

    /** The first task, with what it has seen of the second one's range. */
    private Ledger first() {
        Map<String, Map<String, Object>> seen = new TreeMap<>(offsets);
        if (size.tasks > 1) put(seen, PARTITIONS.of(NAMESPACE, 1), seenRange);
        return new Ledger(PARTITIONS, reader(seen));
    }

    private void addCopy(Ledger ledger, List<Step> steps) {
        CollectionCopy copy = ledger.rows().copies().get(NAMESPACE).orElseThrow();
        for (int range = 0; range < copy.ranges().size(); range++)
            if (size.tasks == 1 || range == 0) addPages(ledger, range, steps);
        if (size.tasks > 1) addLooks(ledger, steps);
        if (ledger.rows().isCopied()) {
            steps.add(RoundsWorld::beginStream);
        } else if (ledger.round() < size.rounds
                && (size.tasks == 1 || seenEnd >= ledger.round() || fault == Fault.OTHERS_ARE_NOT_AWAITED)) {
            steps.add(RoundsWorld::catchUp);
        }
    }

    /** Of the first task, where there is something new to see. */
    private void addLooks(Ledger ledger, List<Step> steps) {
        Ledger committed = new Ledger(PARTITIONS, reader(offsets));
        boolean hasEnded = PARTITIONS.ended(1, reader(offsets)) >= ledger.round();
        if (!hasEnded && !committed.rows().range(NAMESPACE, 1).isDone()) return;
        steps.add(fault == Fault.ENDS_ARE_READ_LAST ? RoundsWorld::seeRange : RoundsWorld::readEnd);
        steps.add(fault == Fault.ENDS_ARE_READ_LAST ? RoundsWorld::seeEnd : RoundsWorld::seeRangeAndEnd);
    }

    /** A read began now, or with the round, as a page may wait. */
    private void addPages(Ledger ledger, int range, List<Step> steps) {
        RangeCopy copy = ledger.rows().range(NAMESPACE, range);
        if (copy.isDone()) return;
        int earliest = fault == Fault.ROW_IS_READ_BEFORE_THE_ROUND ? START : time(ledger.start());
        for (int time : earliest == now() ? List.of(earliest) : List.of(earliest, now())) {
            if (left(copy, range, time).size() > 1 || size.isOneRange)
                steps.add(world -> world.page(range, time, false));
            steps.add(world -> world.page(range, time, true));
        }
    }

    /** The ids of a range that are not read, in its order. */
    private List<Integer> left(RangeCopy copy, int range, int time) {
        return IDS.stream()
                .filter(id -> isLeft(id, range, time, copy.after()))
                .sorted(Comparator.comparing(id -> size.isNatural ? recordId(time, id) : id))
                .toList();
    }

    /** @param isLast whether the page holds the rest of the range; otherwise it holds one document */
    private void page(int range, int time, boolean isLast) {
        boolean isSecond = size.tasks > 1 && range == 1;
        Ledger ledger = isSecond ? new Ledger(PARTITIONS, reader(share)) : first();
        List<Integer> ids = left(ledger.rows().range(NAMESPACE, range), range, time);
        if (!isLast) {
            if (ids.isEmpty()) return;
            ids = ids.subList(0, 1);
        }
        List<byte[]> documents = ids.stream().map(id -> KEYS[id]).toList();
        byte[] upTo = RangePlan.OPEN_END;
        if (!isLast) upTo = size.isNatural ? RecordIds.position(recordId(time, ids.get(0))) : KEYS[ids.get(0)];
        ledger.advance(new Page(NAMESPACE, range, documents, 1, time(time), upTo));
        List<SourceRecord> records = List.of(ledger.rangeRecord(NAMESPACE, range));
        commit(records);
        if (isSecond) commit(records, share);
        ids.forEach(id -> row(id, time));
    }

    private int recordId(int time, int id) {
        return source.get(time).get(id).recordId;
    }

    private boolean isLeft(int id, int range, int time, byte[] after) {
        if (asOf(time, id) == null) return false;
        if (!size.isNatural)
            return (size.isOneRange || range == id - 1)
                    && (after.length == 0 || BsonOrder.compare(KEYS[id], after) > 0);
        int recordId = recordId(time, id);
        boolean isIn = size.isOneRange || (recordId <= 1) == (range == 0);
        return isIn && (after.length == 0 || recordId > RecordIds.recordId(after));
    }

    private void beginStream() {
        Ledger ledger = first();
        ledger.beginStream();
        commit(List.of(ledger.rootRecord()));
    }

    /** The source is read from another member, or by another plan. */
    private void copyAnew() {
        kills++;
        Ledger ledger = first();
        RangePlan plan = ledger.rows().copies().get(NAMESPACE).orElseThrow().plan();
        commit(ledger.copyAnew(NAMESPACE));
        commit(List.of(ledger.plan(NAMESPACE, plan)));
    }

    private void resnapshot() {
        killFirst();
        commit(first().copyAgain("again", List.of(NAMESPACE), time(now()), false));
    }

    private void catchUp() {
        commit(List.of(first().catchUp()));
    }

    // the stream

    private void addStream(Ledger ledger, List<Step> steps) {
        if (position < now()) steps.add(RoundsWorld::event);
        if (position > stored && position >= START && ledger.isStreaming()) steps.add(RoundsWorld::heartbeat);
        boolean isPastRows = !ledger.largestTime().isAfter(time(position));
        boolean isPending = ledger.rows().nextPending().isPresent();
        if (isPending && isPastRows) steps.add(RoundsWorld::reread);
        if (!isPending && isPastRows && ledger.isStreaming() && !ledger.rows().isComplete() && position >= START)
            steps.add(RoundsWorld::added);
        if (ledger.isCatchingUp() && position >= time(ledger.start())) steps.add(RoundsWorld::beginRound);
        if (fault == Fault.REQUEST_IS_ANSWERED && isPastRows && !ledger.isStreaming() && position >= START)
            steps.add(RoundsWorld::answer);
    }

    private void event() {
        Ledger ledger = first();
        int time = ++position;
        if (time == START) return; // the beginning is no operation of the model
        int id = operations.get(time).charAt(0) - '0';
        boolean isHeld = isHeld(ledger, id, time);
        List<SourceRecord> records = new ArrayList<>();
        List<SourceRecord> pending = ledger.newPending();
        if (fault != Fault.PENDING_KEY_IS_FORGOTTEN) records.addAll(pending);
        if (!isHeld) {
            boolean mayFindNone = ledger.rows().rowFollows(NAMESPACE, KEYS[id]);
            stored = time;
            records.addAll(ledger.forget(time(time), false));
            apply(id, time, mayFindNone);
        }
        commit(records);
    }

    private boolean isHeld(Ledger ledger, int id, int time) {
        if (fault == Fault.UNREAD_IS_EMITTED)
            return ledger.rows().holds(NAMESPACE, KEYS[id], time(time), ledger.start(), false);
        int judged = fault == Fault.EARLIER_INSTEAD_OF_UP_TO ? time + 1 : time;
        return ledger.holds(NAMESPACE, KEYS[id], time(judged));
    }

    private void heartbeat() {
        stored = position;
        commit(first().forget(time(position), false));
    }

    private void reread() {
        Ledger ledger = first();
        RowTimes.Pending pending = ledger.rows().nextPending().orElseThrow();
        commit(ledger.reread(pending.namespace(), pending.keys(), time(position)));
        if (fault != Fault.REREAD_STORES_NO_POSITION) stored = position;
        for (int id : IDS) if (pending.keys().stream().anyMatch(key -> Arrays.equals(key, KEYS[id]))) row(id, position);
    }

    /** The next plan or page of a collection that is copied while the stream continues. */
    private void added() {
        Ledger ledger = first();
        Optional<CollectionCopy> copy = ledger.rows().copies().get(NAMESPACE);
        stored = position;
        if (copy.isPresent()) {
            page(copy.get().firstOpen(), position, true);
        } else {
            commit(List.of(ledger.plan(NAMESPACE, new RangePlan(List.of(KEYS[2]), 2, 2, 8))));
        }
    }

    private void answer() {
        stored = position;
        IDS.forEach(id -> row(id, position));
    }

    private void beginRound() {
        Ledger ledger = first();
        commit(List.of(ledger.beginRound(time(position))));
        stored = position;
        seenRange = offsets.get(name(PARTITIONS.of(NAMESPACE, 1)));
        readEnd = 0;
        seenEnd = 0;
    }

    // the second task

    private void addSecond(List<Step> steps) {
        OffsetStorageReader committed = reader(offsets);
        long ended = fault == Fault.ENDED_TASK_READS ? 0 : PARTITIONS.ended(1, committed);
        if (share == null) {
            if (Ledger.hasNews(ended, PARTITIONS, committed) && new Ledger(PARTITIONS, committed).isCopying())
                steps.add(world -> world.share = new TreeMap<>(world.offsets));
            return;
        }
        Ledger ledger = new Ledger(PARTITIONS, reader(share));
        addPages(ledger, 1, steps);
        long round = ledger.round();
        steps.add(world -> {
            world.commit(List.of(PARTITIONS.endRecord(1, round)));
            world.share = null;
        });
    }

    private void readEnd() {
        readEnd = PARTITIONS.ended(1, reader(offsets));
    }

    private void seeRange() {
        seenRange = offsets.get(name(PARTITIONS.of(NAMESPACE, 1)));
    }

    private void seeEnd() {
        readEnd();
        seenEnd = readEnd;
    }

    private void seeRangeAndEnd() {
        seeRange();
        seenEnd = readEnd;
    }

    // kills

    private void killFirst() {
        kills++;
        Ledger before = first();
        if (size.tasks > 1 && before.isCopying()) commit(List.of(before.beginRound(before.start())));
        seeRange();
        readEnd = 0;
        seenEnd = 0;
        position = stored >= 0 ? stored : time(first().start()) - 1;
    }

    private void killSecond() {
        kills++;
        share = null;
    }

    // the log

    private void row(int id, int time) {
        String document = asOf(time, id);
        // in natural order, rows of one round may come in any order of their times: then the document is pending
        if (!size.isNatural && time < logTimes.getOrDefault(id, 0))
            throw new Broken("the row of %d as of %d goes back".formatted(id, time));
        if (document == null) log.remove(id);
        else log.put(id, document);
        logTimes.merge(id, time, Math::max);
    }

    private void apply(int id, int time, boolean mayFindNone) {
        if (time <= logTimes.getOrDefault(id, 0))
            throw new Broken("the change of %d at %d goes back".formatted(id, time));
        switch (operations.get(time).charAt(1)) {
            case '+' -> log.put(id, "+" + time);
            case '-' -> log.remove(id);
            default -> {
                if (log.containsKey(id)) log.put(id, log.get(id) + "u" + time);
                else if (!mayFindNone) throw new Broken("the update at %d finds no document %d".formatted(time, id));
            }
        }
        logTimes.put(id, time);
    }

    /** Once the stream has passed the rows, a reader of the log has what the source had at the position; of documents that are not read, nothing. */
    private void check(Ledger ledger) {
        boolean isPassed =
                ledger.rows().nextPending().isEmpty() && !ledger.largestTime().isAfter(time(position));
        if (ledger.isCopying() || !isPassed || position < START || position < stored) return;
        for (int id : IDS) {
            String expected = asOf(position, id);
            boolean isUnread = !ledger.isStreaming()
                    && (size.isNatural
                            || ledger.rows()
                                    .copies()
                                    .getOrDefault(NAMESPACE, Optional.empty())
                                    .filter(copy -> copy.timeOf(KEYS[id]).isEmpty())
                                    .isPresent());
            if (isUnread && !size.isNatural) expected = null;
            else if (isUnread) continue;
            if (!Objects.equals(expected, log.get(id)))
                throw new Broken(
                        "at %d, %d is %s in the log and was %s".formatted(position, id, log.get(id), expected));
        }
    }

    /** Whether nothing is left to do. */
    boolean isOver() {
        return first().isStreaming() && position == now() && now() - START == size.operations;
    }

    @Override
    public String toString() {
        return "%s; log %s; stored %d, at %d; %s".formatted(operations, log, stored, position, offsets);
    }

    // offsets

    private void commit(Collection<SourceRecord> records) {
        commit(records, offsets);
    }

    private static void commit(Collection<SourceRecord> records, Map<String, Map<String, Object>> into) {
        records.forEach(record -> put(into, record.sourcePartition(), record.sourceOffset()));
    }

    @SuppressWarnings("unchecked")
    private static void put(Map<String, Map<String, Object>> into, Map<String, ?> partition, Map<String, ?> offset) {
        if (offset == null) into.remove(name(partition));
        else into.put(name(partition), new TreeMap<>((Map<String, Object>) offset));
    }

    private static String name(Map<String, ?> partition) {
        return NAMES.computeIfAbsent(partition, it -> new TreeMap<>(it).toString());
    }

    private static OffsetStorageReader reader(Map<String, Map<String, Object>> offsets) {
        return new OffsetStorageReader() {
            @Override
            public <T> Map<String, Object> offset(Map<String, T> partition) {
                return offsets.get(name(partition));
            }

            @Override
            public <T> Map<Map<String, T>, Map<String, Object>> offsets(Collection<Map<String, T>> partitions) {
                Map<Map<String, T>, Map<String, Object>> found = new HashMap<>();
                partitions.forEach(partition -> found.put(partition, offset(partition)));
                return found;
            }
        };
    }

    private static ClusterTime time(int time) {
        return new ClusterTime(100, time);
    }

    private static int time(ClusterTime time) {
        return (int) time.ordinal();
    }

    private static byte[] key(int id) {
        return CanonicalKey.of(Raw.document(Raw.int32("_id", id)));
    }
}
