package io.towpath.sink;

import com.mongodb.MongoNamespace;
import io.towpath.connector.TextHeaders;
import io.towpath.record.ClusterTime;
import io.towpath.record.ContractException;
import io.towpath.record.RecordHeaders;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.EnumMap;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.TopicPartition;

/**
 * Divides a batch into waves. The changes of one document keep their order, one per wave, so the writes of a wave can be sent by class,
 * in any order. Once waves become small (many changes of few documents), the rest goes in the records' own order.
 */
final class Waves {
    /** A smaller wave costs more in round trips than sending by class saves. */
    static final int SMALLEST = 16;

    /** Writes of one namespace that go to the server as one bulk, in their order. */
    record Bulk(MongoNamespace namespace, List<Write> writes) {}

    private static final ClusterTime NONE = ClusterTime.ofBits(0);

    private Waves() {}

    static List<List<Bulk>> of(List<Write> writes) {
        if (writes.isEmpty()) return List.of();
        int[] waveOf = new int[writes.size()];
        Map<Write.DocumentId, Integer> changes = new HashMap<>(writes.size() * 2);
        for (int i = 0; i < writes.size(); i++)
            waveOf[i] = changes.merge(writes.get(i).document(), 1, Integer::sum) - 1;
        if (changes.size() == writes.size()) return List.of(classes(writes));
        List<List<Write>> waves = new ArrayList<>();
        for (int i = 0; i < writes.size(); i++) {
            if (waveOf[i] == waves.size()) waves.add(new ArrayList<>());
            waves.get(waveOf[i]).add(writes.get(i));
        }
        int whole = 0;
        while (whole < waves.size() && (whole == 0 || waves.get(whole).size() >= SMALLEST)) whole++;
        List<List<Bulk>> planned = new ArrayList<>();
        waves.subList(0, whole).forEach(wave -> planned.add(classes(wave)));
        List<Write> rest = new ArrayList<>();
        for (int i = 0; i < writes.size(); i++) if (waveOf[i] >= whole) rest.add(writes.get(i));
        if (!rest.isEmpty()) planned.add(inOrder(rest));
        return planned;
    }

    /**
     * Whether a document may have been in the way of another one, by a default collation: "a" is deleted, then "A" inserted. In waves, the
     * delete could come later, if "a" has several writes, and remove "A". Folded, only the last state of each is written, deletes first.
     */
    static boolean mayMeet(List<Write> single) {
        Set<Write.DocumentId> documents = new HashSet<>();
        return single.stream()
                .map(Write::document)
                .filter(Write.DocumentId::isCollated)
                .anyMatch(document -> !documents.add(document));
    }

    /** One wave that keeps the order of all writes. */
    static List<Bulk> inOrder(List<Write> writes) {
        List<Bulk> runs = new ArrayList<>();
        for (Write write : writes) {
            if (runs.isEmpty() || !runs.get(runs.size() - 1).namespace().equals(write.namespace()))
                runs.add(new Bulk(write.namespace(), new ArrayList<>()));
            runs.get(runs.size() - 1).writes().add(write);
        }
        return runs;
    }

    private static List<Bulk> classes(List<Write> wave) {
        Map<Write.Kind, Map<MongoNamespace, Bulk>> bulks = new EnumMap<>(Write.Kind.class);
        Write last = null;
        Bulk bulk = null;
        for (Write write : wave) {
            if (last == null || last.namespace() != write.namespace() || last.kind() != write.kind()) {
                bulk = bulks.computeIfAbsent(write.kind(), unused -> new LinkedHashMap<>())
                        .computeIfAbsent(write.namespace(), namespace -> new Bulk(namespace, new ArrayList<>()));
            }
            bulk.writes().add(write);
            last = write;
        }
        return bulks.values().stream().flatMap(each -> each.values().stream()).toList();
    }

    /**
     * The writes in the order of the source's history, across partitions; within a partition they keep theirs, whatever the times. Needed
     * where documents depend on one another, as in a unique index: the write that frees a value comes before the one that takes it.
     */
    static List<Write> inSourceOrder(List<Write> writes) {
        Map<TopicPartition, ClusterTime> latest = new HashMap<>();
        List<Timed> timed = new ArrayList<>();
        for (Write write : writes) {
            TopicPartition partition = Records.partition(write.record());
            timed.add(new Timed(latest.merge(partition, time(write), Waves::later), write));
        }
        timed.sort(Comparator.comparing(Timed::time));
        return timed.stream().map(Timed::write).toList();
    }

    private static ClusterTime later(ClusterTime left, ClusterTime right) {
        return left.isAfter(right) ? left : right;
    }

    private static ClusterTime time(Write write) {
        try {
            return TextHeaders.read(write.record(), RecordHeaders.Part.TIME)
                    .map(ClusterTime::parse)
                    .orElse(NONE);
        } catch (ContractException noTime) {
            return NONE; // a hint only: the partition's latest time counts
        }
    }

    private record Timed(ClusterTime time, Write write) {}
}
