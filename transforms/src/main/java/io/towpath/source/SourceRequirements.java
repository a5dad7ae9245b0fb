package io.towpath.source;

import io.debezium.util.Strings;
import io.towpath.connector.Requirements;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import org.apache.kafka.common.config.ConfigException;

/** What {@link MongoSource} needs of the settings of Connect and of Debezium. */
final class SourceRequirements {
    private static final String PIPELINE = "cursor.pipeline";
    private static final String SILENT = "what Debezium cannot read would be left out in silence";

    private SourceRequirements() {}

    static Requirements of(Map<String, String> configuration) {
        Requirements requirements = ExactlyOnce.in(new Requirements(configuration))
                .bytes()
                .unset("errors.tolerance", List.of("none"), "records with errors would be left out in silence")
                .unset("event.processing.failure.handling.mode", List.of("fail"), SILENT)
                .unset("cursor.oversize.handling.mode", List.of("fail"), SILENT)
                .set(
                        "mongodb.authentication.class",
                        List.of(RawDocuments.class.getName()),
                        "documents would lose their bytes and types")
                .passes(PIPELINE, () -> requireCarrier(configuration.get(PIPELINE)));
        for (String key : SourceCluster.FILTERS)
            requirements.passes(
                    key,
                    () -> Strings.listOfRegex(configuration.get(key), Pattern.CASE_INSENSITIVE)); // as Debezium does
        if (Boolean.parseBoolean(configuration.get(SourceSettings.WHOLE_DOCUMENTS)))
            requirements.unset(
                    "capture.mode",
                    List.of("change_streams_update_full", "change_streams_update_full_with_pre_image"),
                    "%s=true needs the documents that are looked up".formatted(SourceSettings.WHOLE_DOCUMENTS));
        return requirements;
    }

    private static void requireCarrier(String pipeline) {
        if (!ChangeCarrier.isCarriedBy(pipeline))
            throw new ConfigException(
                    PIPELINE,
                    pipeline,
                    "updates and deletes would lose their bytes; let it begin with " + ChangeCarrier.PIPELINE);
    }
}
