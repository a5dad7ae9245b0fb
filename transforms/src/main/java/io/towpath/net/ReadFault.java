package io.towpath.source;

import com.mongodb.MongoException;
import com.mongodb.MongoInterruptedException;
import com.mongodb.MongoSocketException;
import com.mongodb.MongoTimeoutException;
import java.util.Set;

/** Which failures of a read pass by themselves. Codes: MongoDB's error_codes.yml, the categories retriable, network and shutdown. */
final class ReadFault {
    private static final int SNAPSHOT_TOO_OLD = 239;
    private static final int SNAPSHOT_UNAVAILABLE = 246;
    private static final Set<Integer> PASSING = Set.of(
            6,
            7,
            24,
            43,
            46,
            63,
            89,
            91,
            112,
            133,
            134,
            150,
            175,
            189,
            202,
            216,
            234,
            237,
            262,
            317,
            358,
            384,
            9001,
            10107,
            11600,
            11602,
            13388,
            13435,
            13436,
            SNAPSHOT_TOO_OLD,
            SNAPSHOT_UNAVAILABLE);

    private ReadFault() {}

    static boolean passes(MongoException error) {
        return error instanceof MongoSocketException
                || error instanceof MongoTimeoutException
                || error.hasErrorLabel("RetryableReadError")
                || PASSING.contains(error.getCode());
    }

    /** Whether the server no longer, or not yet, has the moment that was asked for. */
    static boolean isAboutTime(MongoException error) {
        return error.getCode() == SNAPSHOT_TOO_OLD || error.getCode() == SNAPSHOT_UNAVAILABLE;
    }

    static boolean isInterrupt(MongoException error) {
        return error instanceof MongoInterruptedException
                || Thread.currentThread().isInterrupted();
    }

    static String words(MongoException error) {
        return error.getCode() > 0 ? "%s (code %d)".formatted(error.getMessage(), error.getCode()) : error.getMessage();
    }
}
