package io.towpath.debezium;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.MongoClientSettings;
import com.mongodb.client.model.changestream.ChangeStreamDocument;
import io.debezium.config.Configuration;
import io.towpath.support.Raw;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.config.ConfigException;
import org.bson.BsonBinaryWriter;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.RawBsonDocument;
import org.bson.codecs.BsonDocumentCodec;
import org.bson.codecs.Codec;
import org.bson.codecs.EncoderContext;
import org.bson.codecs.configuration.CodecRegistry;
import org.bson.io.BasicOutputBuffer;
import org.junit.jupiter.api.Test;

class RawDocumentsTest {
    private static final byte[] DOCUMENT =
            Raw.document(Raw.int32("_id", 1), Raw.join(Raw.everyType()), Raw.int32("twice", 1), Raw.int32("twice", 2));
    private static final Map<String, String> CONFIG = Map.of(
            "mongodb.connection.string",
            "mongodb://127.0.0.1/",
            "topic.prefix",
            "capture",
            "cursor.pipeline",
            CursorPipeline.PIPELINE);

    @Test
    void documentsComeBackFromTheirTextAsTheyWere() {
        BsonDocument document = decode(DOCUMENT);
        assertArrayEquals(DOCUMENT, BsonText.document(document.toJson()).orElseThrow());
        assertArrayEquals(DOCUMENT, BsonText.document(document.toJson(null)).orElseThrow());
    }

    @Test
    void everyByteSurvivesAndTakesOneCharacter() {
        byte[] bytes = new byte[257];
        for (int i = 0; i < bytes.length; i++) bytes[i] = (byte) i; // the last is 0, as in every document
        String text = BsonText.of(bytes);
        assertArrayEquals(bytes, BsonText.document(text).orElseThrow());
        assertTrue(text.length() == 257 && text.chars().allMatch(character -> character < 0x100));
    }

    @Test
    void jsonIsNoDocument() {
        assertEquals(Optional.empty(), BsonText.document("{\"_id\": 1}"));
        assertEquals(Optional.empty(), BsonText.document(""));
    }

    @Test
    void documentsAreReadLikeAnyOther() {
        BsonDocument document = decode(DOCUMENT);
        assertEquals(new BsonInt32(1), document.get("_id"));
        assertTrue(document.containsKey("array") && document.keySet().contains("regex"));
        assertEquals("_id", document.getFirstKey());
        assertEquals(new RawBsonDocument(DOCUMENT), document);
        assertEquals(
                new BsonInt32(2),
                document.clone().append("more", new BsonInt32(2)).get("more"));
        assertThrows(UnsupportedOperationException.class, () -> document.append("more", new BsonInt32(2)));
    }

    @Test
    void documentsAreWrittenAsTheyWere() {
        assertArrayEquals(DOCUMENT, encode(registry().get(BsonDocument.class), decode(DOCUMENT)));
        assertArrayEquals(
                Raw.document(Raw.int32("a", 1)),
                encode(registry().get(BsonDocument.class), new BsonDocument("a", new BsonInt32(1))));
        byte[] token =
                Raw.document(Raw.string("_data", "8263"), Raw.element(5, "_typeBits", new byte[] {1, 0, 0, 0, 0, 7}));
        assertArrayEquals(token, encode(new BsonDocumentCodec(), decode(token)));
    }

    @Test
    void bothDocumentsOfAChangeEventKeepTheirBytes() {
        byte[] before = Raw.document(Raw.embedded("documentKey", Raw.decimal("_id", "5.00")));
        byte[] event = Raw.document(
                Raw.embedded("_id", Raw.string("_data", "8263")),
                Raw.string("operationType", "update"),
                Raw.element(3, "fullDocument", DOCUMENT),
                Raw.element(3, "fullDocumentBeforeChange", before),
                Raw.embedded("documentKey", Raw.int32("_id", 1)),
                Raw.embedded("lsid", Raw.int32("id", 1)));

        ChangeStreamDocument<BsonDocument> decoded =
                new RawBsonDocument(event).decode(ChangeStreamDocument.createCodec(BsonDocument.class, registry()));

        assertArrayEquals(
                DOCUMENT, BsonText.document(decoded.getFullDocument().toJson()).orElseThrow());
        assertArrayEquals(
                before,
                BsonText.document(decoded.getFullDocumentBeforeChange().toJson())
                        .orElseThrow());
        assertEquals("{\"id\": 1}", decoded.getLsid().toJson()); // goes into Debezium's offsets
    }

    @Test
    void pipelineThatCarriesNothingIsRefused() {
        Configuration config = Configuration.from(CONFIG)
                .edit()
                .with("cursor.pipeline", "[{\"$match\": {}}]")
                .build();
        ConfigException error = assertThrows(ConfigException.class, () -> new RawDocuments().init(config));
        assertTrue(error.getMessage().contains("let it begin with " + CursorPipeline.PIPELINE), error.getMessage());
        assertThrows(ConfigException.class, () -> new RawDocuments().init(Configuration.from(Map.of())));
        CursorPipeline.require(CursorPipeline.PIPELINE.replace(" ", ""));
    }

    @Test
    void userAndPasswordAreUsedAsByDebezium() {
        RawDocuments hook = new RawDocuments();
        hook.init(Configuration.from(CONFIG)
                .edit()
                .with("mongodb.user", "u")
                .with("mongodb.password", "p")
                .build());
        MongoClientSettings settings =
                hook.addAuthConfig(MongoClientSettings.builder()).build();
        assertEquals("u", settings.getCredential().getUserName());
    }

    private static CodecRegistry registry() {
        RawDocuments hook = new RawDocuments();
        hook.init(Configuration.from(CONFIG));
        return hook.addAuthConfig(MongoClientSettings.builder()).build().getCodecRegistry();
    }

    private static BsonDocument decode(byte[] bytes) {
        return new RawBsonDocument(bytes).decode(registry().get(BsonDocument.class));
    }

    private static byte[] encode(Codec<BsonDocument> codec, BsonDocument document) {
        BasicOutputBuffer out = new BasicOutputBuffer();
        try (BsonBinaryWriter writer = new BsonBinaryWriter(out)) {
            codec.encode(writer, document, EncoderContext.builder().build());
        }
        return out.toByteArray();
    }
}
