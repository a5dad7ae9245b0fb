package io.towpath.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.bson.BsonDocument;
import org.junit.jupiter.api.Test;

class OffsetDocumentTest {
    private static OffsetDocument of(String json) {
        return OffsetDocument.of(BsonDocument.parse(json));
    }

    @Test
    void aDocumentIsReadAsItIsStored() {
        assertEquals(
                new OffsetDocument(7, 10, 12, "id", 5_000L, "change"),
                of(
                        "{epoch: 7, offset: 10, clear: 12, topicId: 'id', lastAt: {$date: {$numberLong: '5000'}}, barrier: 'change'}"));
        assertEquals(new OffsetDocument(1, 10, 10, null, null), of("{epoch: 1, offset: 10, lastAt: null}"));
        assertEquals(10, of("{epoch: 1, offset: 10, clear: 9}").clear(), "it is behind the position by now");
    }

    @Test
    void whatIsKnownOfTheLogMovesWithThePosition() {
        OffsetDocument position = of("{epoch: 7, offset: 10, clear: 12, topicId: 'id'}");
        assertEquals(new OffsetDocument(7, 10, 15, "id", null), position.clearTo(15));
        assertEquals(new OffsetDocument(7, 10, 12, "other", null), position.inTopic("other"));
        assertEquals(new OffsetDocument(7, 11, 12, "id", 5L, "change"), position.standingAt(11, "change", 5L));
        assertEquals(new OffsetDocument(7, 14, 14, "id", 5L, "change"), position.standingAt(14, "change", 5L));
        assertEquals(
                new OffsetDocument(7, 12, 12, "id", 6L),
                position.standingAt(11, "change", 5L).movedTo(12, 6L));
    }

    @Test
    void theSchemaChangeAtWhichAPartitionStandsIsRead() {
        OffsetDocument position = of("{epoch: 7, offset: 10}");
        assertEquals(10, position.next());
        assertEquals(11, position.standingAt(10, "change", null).next());
    }
}
