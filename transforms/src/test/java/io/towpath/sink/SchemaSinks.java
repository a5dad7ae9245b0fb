package io.towpath.sink;

import com.mongodb.client.MongoCollection;
import io.towpath.support.Server;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonDocument;
import org.bson.RawBsonDocument;

/** Tasks that share the partitions of a source's log, as a group of consumers does. A task may be thrown away, or go on after its time. */
final class SchemaSinks implements AutoCloseable {
    private static final int POLL = 7;
    /** How often a task is called that does not know that it is gone. */
    private static final int AFTERLIFE = 10;

    /** A task, and what Connect does with it. */
    final class Member {
        final TestTask task;
        final Worker worker;
        private final Map<TopicPartition, Integer> appended = new HashMap<>();
        private int afterlife;

        private Member(TestTask task) {
            this.task = task;
            this.worker = new Worker(task, POLL);
        }

        private void learn() {
            source.log.forEach((partition, records) -> {
                int known = appended.getOrDefault(partition, 0);
                List<SinkRecord> more = List.copyOf(records.subList(known, records.size()));
                if (!more.isEmpty()) worker.append(partition, more);
                appended.put(partition, records.size());
            });
        }

        @Override
        public String toString() {
            return worker.toString();
        }

        void iterate() {
            learn();
            worker.iterate();
        }
    }

    private final MongoCollection<RawBsonDocument> collection;
    private final SchemaSource source;
    private final Map<String, String> settings;
    private final List<Member> all = new ArrayList<>();
    final List<Member> members = new ArrayList<>();
    final List<Member> zombies = new ArrayList<>();

    SchemaSinks(
            MongoCollection<RawBsonDocument> collection,
            SchemaSource source,
            List<String> collections,
            int tasks,
            String... more) {
        this.collection = collection;
        this.source = source;
        String uri = Server.uri();
        this.settings = new HashMap<>(Map.of(
                "connection.uri",
                uri + (uri.contains("?") ? "&" : "?") + "appName=sink",
                "topics",
                String.join(",", collections.stream().map(source::topic).toList()),
                SinkSettings.POLL_RECORDS,
                Integer.toString(POLL),
                SinkSettings.RETRY_TIMEOUT,
                "300"));
        for (int i = 0; i < more.length; i += 2) settings.put(more[i], more[i + 1]);
        for (int task = 0; task < tasks; task++) add();
        share();
    }

    private Member add() {
        Map<String, String> own = new HashMap<>(settings);
        own.put(SinkSettings.TASK, Integer.toString(all.size()));
        Member member = new Member(new TestTask(collection, own));
        all.add(member);
        members.add(member);
        return member;
    }

    /** Partitions that no task has go to the tasks in turn. */
    void share() {
        Set<TopicPartition> owned = new HashSet<>();
        members.forEach(member -> owned.addAll(member.worker.assigned()));
        int turn = 0;
        for (TopicPartition partition : source.log.keySet()) {
            if (owned.contains(partition)) continue;
            Member member = members.get(turn++ % members.size());
            member.learn();
            member.worker.assign(List.of(partition));
        }
    }

    /** How many changes the tasks show as refused. */
    long refused() throws Exception {
        long refused = 0;
        for (Member member : members)
            refused += ((Number) member.task.metrics().get("SchemaChangesRefused")).longValue();
        return refused;
    }

    /** A task is gone without a word, and another one takes its place. */
    Member kill(int number) {
        Member killed = members.remove(number);
        add();
        share();
        return killed;
    }

    /** As {@link #kill}, but the former task does not know, and continues. */
    void displace(int number) {
        zombies.add(kill(number));
    }

    void move(TopicPartition partition, int number) {
        members.stream()
                .filter(member -> member.worker.assigned().contains(partition))
                .forEach(member -> member.worker.revoke(List.of(partition)));
        members.get(number).learn();
        members.get(number).worker.assign(List.of(partition));
    }

    void iterate() {
        share();
        members.forEach(Member::iterate);
        if (zombies.removeIf(SchemaSinks::isOver)) rebalance();
    }

    private static boolean isOver(Member zombie) {
        try {
            zombie.iterate();
            return ++zombie.afterlife == AFTERLIFE;
        } catch (ConnectException displaced) {
            return true;
        }
    }

    /** As when a consumer joins the group: by Kafka's default, all of them are assigned their partitions again. */
    private void rebalance() {
        for (Member member : members) {
            Set<TopicPartition> assigned = member.worker.assigned();
            member.worker.revoke(assigned);
            member.worker.assign(assigned);
        }
    }

    /** Whether all of the log is applied. */
    boolean isDone(Server server) {
        return source.log.entrySet().stream().allMatch(entry -> {
            BsonDocument stored = server.offsets()
                    .find(OffsetDocument.filter(TestTask.PIPELINE, entry.getKey()))
                    .first();
            long end = entry.getValue().get(entry.getValue().size() - 1).kafkaOffset() + 1;
            return stored != null && stored.getNumber("offset").longValue() >= end;
        });
    }

    /** Throws the task away as a killed worker does: nothing of it continues. */
    void end(Member member) {
        member.task.task.stop();
    }

    @Override
    public void close() {
        all.forEach(this::end);
    }
}
