package io.towpath.sink.model;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.client.model.UpdateOneModel;
import io.towpath.fold.Fold;
import io.towpath.record.BsonBytes;
import io.towpath.support.Raw;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.bson.BsonDocument;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.Test;

class WriteModelsTest {
    /** Its names are in it twice, which decoding would lose. */
    private static final BsonDocument FILTER = new RawBsonDocument(
            Raw.document(Raw.embedded("_id", Raw.embedded("$eq", Raw.int32("a", 1), Raw.int32("a", 2)))));

    private static final byte[] UPDATE = Raw.document(Raw.embedded("$set", Raw.int32("a", 1)));

    private static UpdateOneModel<?> update(boolean isStage, Map<String, Integer> lengths) {
        return assertInstanceOf(
                UpdateOneModel.class, WriteModels.update(FILTER, new Fold.Folded.Update(UPDATE, isStage, lengths)));
    }

    @Test
    void anUpdateFindsItsDocumentByItsIdAlone() {
        UpdateOneModel<?> update = update(false, Map.of());
        assertEquals(FILTER, update.getFilter());
        assertEquals(new RawBsonDocument(UPDATE), update.getUpdate());
    }

    @Test
    void arraysThatAreSplicedHaveTheLengthsThatTheyHadAtTheSource() {
        Map<String, Integer> lengths = new LinkedHashMap<>();
        lengths.put("l", 3);
        lengths.put("a.m", 0);
        byte[] id = Raw.embedded("_id", Raw.embedded("$eq", Raw.int32("a", 1), Raw.int32("a", 2)));
        byte[] sizes = Raw.join(Raw.embedded("l", Raw.int32("$size", 3)), Raw.embedded("a.m", Raw.int32("$size", 0)));
        UpdateOneModel<?> operators = update(false, lengths);
        assertArrayEquals(Raw.document(id, sizes), BsonBytes.of((BsonDocument) operators.getFilter()));
        assertEquals(new RawBsonDocument(UPDATE), operators.getUpdate());

        UpdateOneModel<?> stage = update(true, lengths);
        BsonDocument filter = (BsonDocument) stage.getFilter();
        assertEquals(List.of("_id", "l", "a.m", "$expr"), List.copyOf(filter.keySet()));
        assertEquals(SingleNames.of(PathNode.of(lengths.keySet())), filter.get("$expr"));
        assertEquals(List.of(new RawBsonDocument(UPDATE)), stage.getUpdatePipeline());
    }

    /** mongod may abort where one of them is. */
    @Test
    void noNameOnTheWayToAPlaceIsTwice() {
        String condition = SingleNames.of(PathNode.of(List.of("a.b.l"))).toString();
        for (String name : List.of("a", "b", "l"))
            assertTrue(condition.contains("{\"$literal\": [\"%s\"]}".formatted(name)), condition);
    }
}
