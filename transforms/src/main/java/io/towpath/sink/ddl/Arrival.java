package io.towpath.sink.ddl;

import com.mongodb.client.MongoClient;
import java.util.function.Predicate;

/**
 * A schema change at which partitions of a task wait.
 *
 * @param arrived how many of its partitions wait at it, or are past it, at all tasks
 * @param expected how many it has
 * @param makes asks through a client whether this task still is the one that makes the change; null when it is not
 */
public record Arrival(Barrier barrier, int arrived, int expected, Predicate<MongoClient> makes) {
    String id() {
        return barrier.change().id();
    }

    boolean allStand() {
        return arrived >= expected;
    }
}
