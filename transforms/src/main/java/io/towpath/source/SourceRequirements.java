package io.towpath.source;

import io.debezium.util.Strings;
import io.towpath.connector.Requirements;
import io.towpath.debezium.CursorPipeline;
import io.towpath.debezium.RawDocuments;
import io.towpath.debezium.SourceCluster;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import org.apache.kafka.common.config.ConfigException;

/** What {@link MongoSource} needs of the settings of Connect and of Debezium. */
final class SourceRequirements {
    private static final String PIPELINE = "cursor.pipeline";
    private static final String HOOK = "mongodb.authentication.class";
    /** The hook's name in pipelines that earlier versions deployed. */
    private static final String HOOK_BEFORE = "io.towpath.source.RawDocuments";

    private static final String SILENT = "what Debezium cannot read would be left out silently";

    private SourceRequirements() {}

    static Requirements of(Map<String, String> configuration) {
        Requirements requirements = ExactlyOnce.in(new Requirements(configuration))
                .bytes()
                .unset("errors.tolerance", List.of("none"), "records with errors would be left out silently")
                .unset("event.processing.failure.handling.mode", List.of("fail"), SILENT)
                .unset("cursor.oversize.handling.mode", List.of("fail"), SILENT)
                .set(
                        HOOK,
                        List.of(
                                HOOK_BEFORE.equals(configuration.get(HOOK))
                                        ? HOOK_BEFORE
                                        : RawDocuments.class.getName()),
                        "documents would lose their bytes and types")
                .passes(PIPELINE, () -> requirePipeline(configuration.get(PIPELINE)));
        for (String key : SourceCluster.FILTERS)
            requirements.passes(
                    key,
                    () -> Strings.listOfRegex(configuration.get(key), Pattern.CASE_INSENSITIVE)); // as Debezium does
        if (Boolean.parseBoolean(configuration.get(SourceSettings.WHOLE_DOCUMENTS)))
            requirements.unset(
                    "capture.mode",
                    List.of("change_streams_update_full", "change_streams_update_full_with_pre_image"),
                    "%s=true needs the documents that Debezium looks up".formatted(SourceSettings.WHOLE_DOCUMENTS));
        return requirements;
    }

    private static void requirePipeline(String pipeline) {
        if (!CursorPipeline.isIn(pipeline))
            throw new ConfigException(
                    PIPELINE,
                    pipeline,
                    "updates and deletes would lose their bytes; let it begin with " + CursorPipeline.PIPELINE);
    }
}
