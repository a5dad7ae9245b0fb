package io.towpath.net;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.mongodb.MongoCommandException;
import com.mongodb.MongoException;
import com.mongodb.MongoNotPrimaryException;
import com.mongodb.MongoOperationTimeoutException;
import com.mongodb.MongoSecurityException;
import com.mongodb.MongoSocketReadException;
import com.mongodb.MongoTimeoutException;
import com.mongodb.ServerAddress;
import java.util.stream.Stream;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class RetryCauseTest {
    private static final ServerAddress ADDRESS = new ServerAddress();

    @ParameterizedTest
    @CsvSource({
        "10107, NO_PRIMARY",
        "11602, NO_PRIMARY",
        "6, NETWORK",
        "112, CONFLICT",
        "11000, CONFLICT",
        "50, TIMEOUT",
        "290, TIMEOUT",
        "246, SNAPSHOT",
        "13, PERMISSION",
        "371, PERMISSION",
        "12501, RESOURCES",
        "388, RESOURCES",
        "462, RESOURCES",
        "251, OTHER",
        "121, OTHER",
        "99999, OTHER"
    })
    void theServersCodeSaysIt(int code, RetryCause cause) {
        assertEquals(cause, RetryCause.of(command(code)));
        assertEquals(cause, RetryCause.of(new MongoException(code, "of a write")));
    }

    @Test
    void withoutACodeTheDriversErrorSaysIt() {
        assertEquals(RetryCause.NETWORK, RetryCause.of(new MongoSocketReadException("reset", ADDRESS)));
        assertEquals(RetryCause.NO_PRIMARY, RetryCause.of(new MongoTimeoutException("no server")));
        assertEquals(RetryCause.NO_PRIMARY, RetryCause.of(new MongoNotPrimaryException(answer(0), ADDRESS)));
        assertEquals(RetryCause.TIMEOUT, RetryCause.of(new MongoOperationTimeoutException("too slow")));
        assertEquals(RetryCause.PERMISSION, RetryCause.of(new MongoSecurityException(null, "no such user")));
        assertEquals(RetryCause.RESOURCES, RetryCause.of(new MongoException(8, "28: No space left on device")));
        assertEquals(RetryCause.OTHER, RetryCause.of(new MongoException("anything")));
        assertEquals(RetryCause.OTHER, RetryCause.of(new IllegalStateException()));
    }

    @Test
    void eachCauseIsSomeErrors() {
        assertEquals(
                RetryCause.values().length - 1, // all but KAFKA
                Stream.of(ServerError.values())
                        .map(error -> RetryCause.of(command(error.code())))
                        .distinct()
                        .count());
    }

    private static MongoException command(int code) {
        return new MongoCommandException(answer(code), ADDRESS);
    }

    private static BsonDocument answer(int code) {
        return new BsonDocument("code", new BsonInt32(code));
    }
}
