package io.towpath.sink;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.client.model.DeleteOneModel;
import com.mongodb.client.model.ReplaceOneModel;
import com.mongodb.client.model.UpdateOneModel;
import com.mongodb.client.model.WriteModel;
import com.mongodb.kafka.connect.sink.MongoSinkTopicConfig;
import com.mongodb.kafka.connect.sink.cdc.CdcHandler;
import com.mongodb.kafka.connect.sink.converter.SinkConverter;
import com.mongodb.kafka.connect.sink.converter.SinkDocument;
import com.mongodb.kafka.connect.sink.namespace.mapping.NamespaceMapper;
import io.towpath.record.BsonBytes;
import io.towpath.sink.plain.RecordHandler;
import io.towpath.sink.plain.TopicNamespaceMapper;
import io.towpath.support.Raw;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonDocument;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Handler and mapper, made by mongo-kafka from a sink's settings, given records as its converter reads them. */
class SinkTest {
    private static final String TOPIC = "main.shop.orders.eu";
    private static final SinkDocument NOTHING = new SinkDocument(null, null);
    private static final byte[] KEY = Raw.document(Raw.int64("_id", 5));

    @Test
    void documentReplacesTheOneOfItsOwnId() {
        byte[] document = Raw.document(
                Raw.decimal("_id", "5.00"), Raw.int32("x", 1), Raw.embedded("in", Raw.timestamp("t", 0, 0)));

        ReplaceOneModel<BsonDocument> write = model(ReplaceOneModel.class, handle(KEY, document));

        assertEquals(BsonDocument.parse("{_id: {$numberDecimal: '5.00'}}"), write.getFilter());
        assertEquals(new RawBsonDocument(document), write.getReplacement());
        assertTrue(write.getReplaceOptions().isUpsert());
    }

    @ParameterizedTest
    @ValueSource(strings = {"{_id: 5, t: {$timestamp: {t: 0, i: 0}}}", "{_id: 5, $x: 1}"})
    void documentThatAReplaceWouldChangeOrRefuseIsWrittenLiterally(String json) {
        BsonDocument document = BsonDocument.parse(json);
        UpdateOneModel<BsonDocument> write = model(UpdateOneModel.class, handle(KEY, bytes(document)));
        assertEquals(
                List.of(new BsonDocument("$replaceWith", new BsonDocument("$literal", document))),
                write.getUpdatePipeline());
        assertTrue(write.getOptions().isUpsert());
        assertEquals(BsonDocument.parse("{_id: 5}"), write.getFilter());
    }

    @Test
    void emptyTimestampAsIdIsNoReasonForThat() {
        byte[] document = Raw.document(Raw.timestamp("_id", 0, 0));
        assertInstanceOf(ReplaceOneModel.class, handle(document, document));
    }

    @Test
    void idThatIsADocumentIsComparedNotRead() {
        byte[] document = Raw.document(Raw.embedded("_id", Raw.int32("$gt", 1)));
        assertEquals(
                BsonDocument.parse("{_id: {$eq: {$gt: 1}}}"),
                ((ReplaceOneModel<BsonDocument>) handle(document, document)).getFilter());
    }

    @Test
    void whatDecodingWouldLoseStays() {
        byte[] document = Raw.document(
                Raw.embedded("_id", Raw.int32("a", 1), Raw.int32("a", 2)), Raw.int32("b", 1), Raw.int32("b", 2));
        ReplaceOneModel<BsonDocument> write = model(ReplaceOneModel.class, handle(document, document));
        assertArrayEquals(document, bytes(write.getReplacement()));
        byte[] filter = Raw.document(Raw.embedded("_id", Raw.embedded("$eq", Raw.int32("a", 1), Raw.int32("a", 2))));
        assertArrayEquals(filter, bytes((BsonDocument) write.getFilter()));
    }

    @Test
    void nullDeletes() {
        assertEquals(
                BsonDocument.parse("{_id: {$numberLong: '5'}}"),
                ((DeleteOneModel<BsonDocument>) handle(KEY, null)).getFilter());
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "{$set: {z: 1}}",
                "{$set: {'7': 1}}",
                "{$set: {a: 1, b: {c: 1}, \u00e9: 2}}",
                "{$unset: {z: '', a: ''}}",
                "{$set: {a: 1}, $unset: {b: ''}}"
            })
    void updateThatCannotBeRefusedStaysAsItIs(String json) {
        UpdateOneModel<BsonDocument> write = model(UpdateOneModel.class, handle(KEY, bytes(BsonDocument.parse(json))));
        assertEquals(BsonDocument.parse(json), write.getUpdate());
        assertFalse(write.getOptions().isUpsert());
        assertEquals(BsonDocument.parse("{_id: {$numberLong: '5'}}"), write.getFilter());
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "{$set: {z: 1, a: 1}}",
                "{$set: {'2': 1, '10': 1}}",
                "{$set: {'0': 1, a: 1}}",
                "{$set: {'9': 1, a: 1}}",
                "{$set: {'.a': 1}}",
                "{$set: {'a.b': 1}}",
                "{$set: {'': 1}}",
                "{$set: {$x: 1}}",
                "{$unset: {'a.b': ''}}",
                "{$truncate: {a: 1}}"
            })
    void updateThatCouldBeRefusedOrReorderedIsWrittenTotally(String json) {
        UpdateOneModel<BsonDocument> write = model(UpdateOneModel.class, handle(KEY, bytes(BsonDocument.parse(json))));
        assertTrue(write.getUpdatePipeline().toString().startsWith("[{\"$replaceWith\": "));
        assertFalse(write.getOptions().isUpsert());
    }

    @Test
    void updateNestedTooDeepForThatFallsBackToOperators() {
        String path = "a" + ".a".repeat(60);
        BsonDocument update = new BsonDocument("$set", BsonDocument.parse("{'%s': 1}".formatted(path)))
                .append("$truncate", BsonDocument.parse("{'b': 2}"));
        assertEquals(
                BsonDocument.parse("{$set: {'%s': 1}, $push: {b: {$each: [], $slice: 2}}}".formatted(path)),
                ((UpdateOneModel<BsonDocument>) handle(KEY, bytes(update))).getUpdate());
    }

    @Test
    void aSpliceIsNotForAWriteThatMayBeRepeated() {
        byte[] update = bytes(BsonDocument.parse("{$splice: {a: [1, [0, 1, []]]}}"));
        DataException error = assertThrows(DataException.class, () -> handle(KEY, update));
        assertEquals(
                "topic main.shop.orders.eu: {\"_id\": 5}: an update with splices of arrays, which only mode exactly-once can apply: "
                        + "choose that mode, or set [capture] splice_cache = 0, deploy, and copy the collection again",
                error.getMessage());
    }

    @Test
    void whatBreaksTheContractIsNamed() {
        DataException value = assertThrows(DataException.class, () -> handle(KEY, Raw.document(Raw.int32("a", 1))));
        assertEquals(
                "topic main.shop.orders.eu: {\"_id\": 5}: a value with the field 'a' and without an _id is neither a document nor an update",
                value.getMessage());
        DataException key = assertThrows(DataException.class, () -> handle(Raw.document(), null));
        assertEquals("topic main.shop.orders.eu: a record without {_id: …} as its key", key.getMessage());
        assertThrows(DataException.class, () -> handle(null, KEY));
        SinkRecord record = new SinkRecord(TOPIC, 0, null, KEY, null, KEY, 0);
        SinkDocument unmapped = new SinkConverter().convert(record);
        DataException mapper =
                assertThrows(DataException.class, () -> new RecordHandler(configured("{}")).handle(unmapped));
        assertTrue(
                mapper.getMessage().endsWith("or namespace.mapper is not io.towpath.sink.plain.TopicNamespaceMapper"));
    }

    @ParameterizedTest
    @CsvSource({
        "main.shop.orders, shop.orders",
        "main.shop.orders.eu, archive.orders",
        "main.shop.orders.eu.x, shop.orders.eu.x",
        "main.a-b_c.1, a-b_c.1",
        "m.d.c, d.c"
    })
    void namespaceIsInTheTopicUnlessRenamed(String topic, String namespace) {
        assertEquals(
                namespace,
                mapper("{\"shop.orders.eu\": \"archive.orders\"}")
                        .getNamespace(record(topic), NOTHING)
                        .getFullName());
    }

    @ParameterizedTest
    @ValueSource(strings = {"main", "main.shop", "main.shop.", "main..orders", ".shop.orders"})
    void topicThatNamesNoneIsRefused(String topic) {
        DataException error =
                assertThrows(DataException.class, () -> mapper("{}").getNamespace(record(topic), NOTHING));
        assertEquals(
                "topic '%s' names no namespace: <prefix>.<database>.<collection> expected".formatted(topic),
                error.getMessage());
    }

    @ParameterizedTest
    @ValueSource(strings = {"[]", "{\"a.b\": 1}", "{\"a.b\": \"c\"}", "x"})
    void renamesThatAreNoneAreRefused(String json) {
        assertThrows(ConfigException.class, () -> configured(json));
    }

    private static WriteModel<BsonDocument> handle(byte[] key, byte[] value) {
        SinkRecord record = new SinkRecord(TOPIC, 0, Schema.BYTES_SCHEMA, key, Schema.OPTIONAL_BYTES_SCHEMA, value, 0);
        SinkDocument document = new SinkConverter().convert(record);
        mapper("{}").getNamespace(record, document);
        CdcHandler handler = new RecordHandler(configured("{}"));
        return handler.handle(document).orElseThrow();
    }

    private static NamespaceMapper mapper(String rename) {
        return configured(rename).getNamespaceMapper();
    }

    private static MongoSinkTopicConfig configured(String rename) {
        Map<String, String> settings = new HashMap<>();
        settings.put("topics", TOPIC);
        settings.put("database", "unused");
        settings.put("namespace.mapper", TopicNamespaceMapper.class.getName());
        settings.put("change.data.capture.handler", RecordHandler.class.getName());
        settings.put(TopicNamespaceMapper.RENAME, rename);
        return new MongoSinkTopicConfig(TOPIC, settings, true);
    }

    private static SinkRecord record(String topic) {
        return new SinkRecord(topic, 0, null, null, null, null, 0);
    }

    private static byte[] bytes(BsonDocument document) {
        return BsonBytes.of(document);
    }

    @SuppressWarnings("unchecked")
    private static <M> M model(Class<?> kind, WriteModel<BsonDocument> model) {
        return (M) assertInstanceOf(kind, model);
    }
}
