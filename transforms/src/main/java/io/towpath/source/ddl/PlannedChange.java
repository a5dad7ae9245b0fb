package io.towpath.source.ddl;

import io.towpath.record.ClusterTime;
import io.towpath.record.SchemaChange;
import java.util.List;
import java.util.Optional;

/**
 * What the log gets of one event.
 *
 * @param changes the records of it, of which each is a barrier
 * @param gone namespaces whose collection is another one from now on, or none
 * @param refilled the namespace whose rows follow, as the destination may not have them
 * @param views the selected views from now on
 * @param problem what users should know; empty when nothing
 */
record PlannedChange(
        ClusterTime time,
        long atMs,
        List<SchemaChange> changes,
        List<String> gone,
        Optional<String> refilled,
        List<String> views,
        String problem) {
    /** The same for a collection whose rows, which are there already, have to come again. */
    PlannedChange again(SchemaChange replacement) {
        return new PlannedChange(
                time,
                atMs,
                List.of(replacement),
                List.of(replacement.namespace()),
                Optional.of(replacement.namespace()),
                views,
                problem);
    }
}
