package io.towpath.debezium;

import io.towpath.support.Raw;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.source.SourceRecord;

/** Builds records as Debezium's connector emits them with our hook. */
final class DebeziumRecords {
    private static final Schema KEY =
            SchemaBuilder.struct().field("id", Schema.STRING_SCHEMA).build();
    private static final Schema SOURCE = SchemaBuilder.struct()
            .field("ts_ms", Schema.INT64_SCHEMA)
            .field("db", Schema.STRING_SCHEMA)
            .field("collection", Schema.STRING_SCHEMA)
            .field("txnNumber", Schema.OPTIONAL_INT64_SCHEMA)
            .build();
    private static final Schema DESCRIPTION = SchemaBuilder.struct()
            .optional()
            .field("updatedFields", Schema.OPTIONAL_STRING_SCHEMA)
            .build();
    private static final Schema ENVELOPE = SchemaBuilder.struct()
            .field("before", Schema.OPTIONAL_STRING_SCHEMA)
            .field("after", Schema.OPTIONAL_STRING_SCHEMA)
            .field("updateDescription", DESCRIPTION)
            .field("source", SOURCE)
            .field("op", Schema.STRING_SCHEMA)
            .field("ts_ms", Schema.INT64_SCHEMA)
            .build();

    static final long SOURCE_MS = 1_700_000_000_123L;
    static final long DEBEZIUM_MS = 1_700_000_009_999L;

    private final Map<String, Object> offset = new HashMap<>(Map.of("sec", 1_700_000_000, "ord", 7));
    private final String op;
    private String collection = "orders";
    private String before;
    private String after;
    private Struct description;
    private Long transaction;

    private DebeziumRecords(String op) {
        this.op = op;
    }

    static DebeziumRecords op(String op) {
        return new DebeziumRecords(op);
    }

    DebeziumRecords collection(String name) {
        collection = name;
        return this;
    }

    DebeziumRecords after(byte[] document) {
        return after(BsonText.of(document));
    }

    DebeziumRecords after(String text) {
        after = text;
        return this;
    }

    /** Key and description as the change stream's pipeline puts them. */
    DebeziumRecords carried(byte[] id, byte[]... description) {
        byte[] key = Raw.element(3, "documentKey", Raw.document(id));
        before = BsonText.of(
                description.length == 0
                        ? Raw.document(key)
                        : Raw.document(key, Raw.embedded("updateDescription", description)));
        return this;
    }

    /** A description as Debezium makes it. */
    DebeziumRecords describedInJson() {
        description = new Struct(DESCRIPTION).put("updatedFields", "{\"a\": 1}");
        return this;
    }

    DebeziumRecords ofTransaction(long number) {
        transaction = number;
        return this;
    }

    DebeziumRecords offset(Map<String, ?> values) {
        offset.clear();
        offset.putAll(values);
        return this;
    }

    SourceRecord record() {
        Struct source = new Struct(SOURCE)
                .put("ts_ms", SOURCE_MS)
                .put("db", "shop")
                .put("collection", collection)
                .put("txnNumber", transaction);
        Struct value = new Struct(ENVELOPE)
                .put("before", before)
                .put("after", after)
                .put("updateDescription", description)
                .put("source", source)
                .put("op", op)
                .put("ts_ms", DEBEZIUM_MS);
        ConnectHeaders headers = new ConnectHeaders();
        headers.addString("__debezium.context.task", "0");
        return new SourceRecord(
                Map.of("server_id", "capture"),
                offset,
                "capture.shop.or_ders",
                3,
                KEY,
                new Struct(KEY).put("id", "{\"lossy\": 1}"),
                ENVELOPE,
                value,
                1L,
                headers);
    }
}
