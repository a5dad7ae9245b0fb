package io.towpath.source.reread;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.Collation;
import com.mongodb.client.model.CollationStrength;
import com.mongodb.client.model.CreateCollectionOptions;
import io.towpath.connector.TextHeaders;
import io.towpath.debezium.SourceCluster;
import io.towpath.record.BsonBytes;
import io.towpath.record.BsonOrder;
import io.towpath.record.CanonicalKey;
import io.towpath.record.RecordHeaders;
import io.towpath.source.progress.Progress;
import io.towpath.source.rules.Rules;
import io.towpath.support.Server;
import io.towpath.support.Sources;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.connect.source.SourceRecord;
import org.bson.BsonDocument;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** Answers to re-read requests, from a real server. */
@Tag("server")
@EnabledIfEnvironmentVariable(named = Server.URI, matches = ".+")
class RereadAnswerServerTest {
    private static final String LARGE = "x".repeat(3 << 20);

    private final Server server = new Server();
    private final SourceCluster source = Sources.connected(Sources.configuration());
    private MongoCollection<RawBsonDocument> collection = server.fresh("reread");

    @AfterEach
    void close() {
        source.close();
        server.close();
    }

    @Test
    void theOrderOfACollationDeletesNothing() {
        collate(Collation.builder().locale("en").build());
        insert("'B'", "'a'", "'C'", "'d'", "'b'");
        assertEquals(
                List.of("A d", "c d", "B r", "C r", "a r", "b r", "d r"),
                sorted(answered(request("'a'", "'A'", "'B'", "'b'", "'C'", "'c'", "'d'"))));
    }

    @Test
    void whatACollationHoldsEqualFollowsTheDelete() {
        collate(Collation.builder()
                .locale("en")
                .collationStrength(CollationStrength.SECONDARY)
                .build());
        insert("'a'", "{x: 'q'}");
        assertEquals(List.of("A d", "a r"), answered(request("'A'")));
        assertEquals(List.of("{\"x\": \"Q\"} d", "{\"x\": \"q\"} r"), answered(request("{x: 'Q'}")));
        assertEquals(List.of("A d", "a r"), answered(request("'A'", "'a'")));
    }

    @Test
    void numbersSideBySideAreTold() {
        String twin = "{$numberDecimal: '0.1000000000000000055511151231257827'}";
        insert("0.1", twin, "{$numberLong: '5'}", "{$numberDecimal: '7'}");
        assertEquals(
                List.of("{\"$numberDecimal\": \"0.1\"} d", "6 d", twin(twin) + " r", "0.1 r", "5 r", "7 r"),
                answered(request("0.1", twin, "{$numberDecimal: '0.1'}", "5.0", "5", "7", "6")));
    }

    private static String twin(String json) {
        return text(RawBsonDocument.parse("{_id: %s}".formatted(json)));
    }

    @Test
    @Tag("nightly")
    void aLargeAnswerIsCutAtKeysWhateverTheOrderAndWhatIsMissing() {
        collate(Collation.builder().locale("en").build());
        List<String> ids = List.of("'B'", "'a'", "'C'", "'d'", "'b'", "'E'", "'f'", "'Z'");
        ids.forEach(id -> collection.insertOne(RawBsonDocument.parse("{_id: %s, large: '%s'}".formatted(id, LARGE))));
        RereadRequest request = request(Stream.concat(ids.stream(), Stream.of("'A'", "'D'", "'c'", "'z'", "'g'"))
                .toArray(String[]::new));

        List<String> all = new ArrayList<>();
        int answers = 0;
        for (int index = 0; index < request.keys().size(); answers++) {
            RereadAnswer answer = RereadAnswer.read(request, index, source.now(), Sources.reads(source));
            assertTrue(answer.documents().size() <= 3, "an answer has a document beyond 8 MB at most");
            index += answer.keys().size();
            // what an answer holds beyond its keys is there, and comes again
            all.addAll(told(answer));
        }
        assertTrue(answers > 2, "answers: " + answers);
        assertEquals(
                List.of("A d", "D d", "c d", "g d", "z d", "B r", "C r", "E r", "Z r", "a r", "b r", "d r", "f r"),
                sorted(all));
    }

    private void collate(Collation collation) {
        collection.drop();
        server.client()
                .getDatabase(collection.getNamespace().getDatabaseName())
                .createCollection("reread", new CreateCollectionOptions().collation(collation));
    }

    private void insert(String... ids) {
        for (String id : ids) collection.insertOne(RawBsonDocument.parse("{_id: %s}".formatted(id)));
    }

    private RereadRequest request(String... ids) {
        List<byte[]> keys = Stream.of(ids)
                .map(id -> CanonicalKey.of(BsonBytes.of(BsonDocument.parse("{_id: %s}".formatted(id)))))
                .sorted(BsonOrder::compare)
                .toList();
        return RereadRequest.of(collection.getNamespace().getFullName(), keys);
    }

    /** Id and operation of each record of the whole answer. */
    private List<String> answered(RereadRequest request) {
        RereadAnswer answer = RereadAnswer.read(request, 0, source.now(), Sources.reads(source));
        assertEquals(request.keys().size(), answer.keys().size());
        return told(answer);
    }

    private static List<String> told(RereadAnswer answer) {
        List<SourceRecord> records =
                answer.records(new Progress("p", null, null, null, Rules.NONE), answer.gone(), Map.of(), Map.of());
        return records.stream()
                .map(record -> text(new RawBsonDocument((byte[]) record.key())) + " "
                        + TextHeaders.read(record, RecordHeaders.Part.OPERATION).orElseThrow())
                .toList();
    }

    private static String text(RawBsonDocument key) {
        String json = BsonDocument.parse(key.toJson()).toJson();
        return json.substring("{\"_id\": ".length(), json.length() - 1).replaceAll("^\"|\"$", "");
    }

    /** Deletes first, each kind by its id. */
    private static List<String> sorted(List<String> told) {
        return told.stream()
                .sorted((left, right) -> {
                    int byKind = left.charAt(left.length() - 1) - right.charAt(right.length() - 1);
                    return byKind != 0 ? byKind : left.compareTo(right);
                })
                .distinct()
                .toList();
    }
}
