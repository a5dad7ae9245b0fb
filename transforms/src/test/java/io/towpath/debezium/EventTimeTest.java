package io.towpath.debezium;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.towpath.record.BsonBytes;
import io.towpath.record.ClusterTime;
import java.util.Base64;
import java.util.Map;
import java.util.Optional;
import org.bson.BsonDocument;
import org.bson.BsonString;
import org.junit.jupiter.api.Test;

class EventTimeTest {
    private static final String TIME = "82" + "00000064" + "00000007";
    private static final ClusterTime THE_TIME = new ClusterTime(100, 7);

    @Test
    void theTokenOfAnEmptyBatchFollowsAllEventsOfItsTime() {
        for (String version : new String[] {"2B02", "2B04"})
            assertEquals(Optional.of(THE_TIME), EventTime.before(offset(TIME + version + "29296E04")));
    }

    @Test
    void theTokenOfAnEventMayBeFollowedByOthersOfItsTime() {
        String event = TIME + "2B022C0100296E5A1004983B441D91E4EF5873F137EE40D7A20461E5F696400";
        assertEquals(Optional.of(THE_TIME.previous()), EventTime.before(offset(event)));
        assertEquals(Optional.of(THE_TIME.previous()), EventTime.before(Map.of("sec", 100, "ord", 7)));
        assertEquals(Optional.of(THE_TIME.previous()), EventTime.before(offset(TIME)), "a form that is not known");
        assertEquals(Optional.empty(), EventTime.before(null));
    }

    private static Map<String, Object> offset(String data) {
        byte[] token = BsonBytes.of(new BsonDocument("_data", new BsonString(data)));
        return Map.of("sec", -1, "ord", -1, "resume_token", Base64.getEncoder().encodeToString(token));
    }
}
