package io.towpath.sink;

import com.mongodb.MongoBulkWriteException;
import com.mongodb.MongoException;
import com.mongodb.MongoSecurityException;
import com.mongodb.MongoSocketException;
import com.mongodb.MongoWriteConcernException;
import com.mongodb.bulk.BulkWriteError;
import java.util.Set;
import java.util.regex.Pattern;

/** What an error of the server's or the driver's says about a transaction. */
enum Verdict {
    /** Nothing about the records: it passes, so the whole is tried again. */
    PASSING,
    /** About one write, which the destination will never take. */
    REFUSED,
    /** The document that was to be inserted is there already. */
    PRESENT,
    /** Something is too large, or about a write that is not named: smaller transactions tell. */
    UNCLEAR,
    /** No retry and no other record will help. */
    HOPELESS;

    static final int DUPLICATE_KEY = 11000;
    static final int NO_TRANSACTIONS = 20;
    private static final int UNKNOWN = 8;

    /** As the server names them in its list of error codes. */
    private static final Set<Integer> PASSING_CODES = Set.of(
            // the network, and members that come, go and change roles
            6,
            7,
            89,
            91,
            145,
            149,
            189,
            190,
            202,
            216,
            230,
            231,
            279,
            308,
            317,
            384,
            407,
            9001,
            10058,
            10107,
            11600,
            11602,
            13435,
            13436,
            // others' work, and time
            24,
            46,
            50,
            64,
            107,
            112,
            117,
            194,
            237,
            262,
            276,
            285,
            290,
            314,
            319,
            338,
            342,
            343,
            355,
            414,
            11601,
            // sessions, transactions, routing
            63,
            133,
            134,
            150,
            203,
            206,
            215,
            225,
            228,
            239,
            246,
            249,
            250,
            251,
            256,
            267,
            272,
            281,
            282,
            356,
            363,
            406,
            412,
            13388,
            // too much at once
            208,
            261,
            264,
            365,
            402,
            433,
            449,
            // who may write, and whether anyone may: a lost role, a quota, a full disk, read-only
            11,
            13,
            18,
            31,
            33,
            214,
            371,
            391,
            404,
            8000,
            12501,
            14031);

    /** A standalone; a view, a capped or a time series collection, a bad name; a command, version or write concern that is not known. */
    private static final Set<Integer> HOPELESS_CODES =
            Set.of(NO_TRANSACTIONS, 59, 72, 73, 79, 100, 115, 123, 166, 167, 169, 188, 238, 263, 322, 323, 324, 347);

    private static final Pattern ON_ID = Pattern.compile(" index: _id_ |collection: \\S+ dup key: \\{ _id:");

    /** Of an error that names one of the writes. */
    static Verdict of(BulkWriteError error, Write.Kind kind) {
        if (error.getCode() == DUPLICATE_KEY
                && ON_ID.matcher(error.getMessage()).find())
            return kind == Write.Kind.INSERT ? PRESENT : PASSING; // two upserts at once
        if (isAboutRoom(error.getCode(), error.getMessage())) return PASSING;
        Verdict verdict = of(error.getCode());
        return verdict == UNCLEAR ? REFUSED : verdict;
    }

    /** Of any other error. */
    static Verdict of(RuntimeException error) {
        if (error instanceof MongoBulkWriteException bulk && bulk.getWriteConcernError() != null)
            return of(bulk.getWriteConcernError().getCode());
        if (!(error instanceof MongoException known)) return UNCLEAR;
        if (known.hasErrorLabel(MongoException.TRANSIENT_TRANSACTION_ERROR_LABEL)
                || known.hasErrorLabel(MongoException.UNKNOWN_TRANSACTION_COMMIT_RESULT_LABEL)
                || known instanceof MongoSocketException
                || known instanceof MongoSecurityException) return PASSING;
        if (isAboutRoom(known.getCode(), known.getMessage())) return PASSING;
        if (known instanceof MongoWriteConcernException concern) return of(concern.getCode());
        if (known.getCode() > 0) return of(known.getCode());
        return PASSING; // the driver's own: no server to be had, a timeout, an interrupt
    }

    /** Before a mongod without room ends itself it answers with the operating system's words, as an unknown error. */
    private static boolean isAboutRoom(int code, String message) {
        return code == UNKNOWN && message != null && message.contains("No space left on device");
    }

    private static Verdict of(int code) {
        if (PASSING_CODES.contains(code)) return PASSING;
        return HOPELESS_CODES.contains(code) ? HOPELESS : UNCLEAR;
    }
}
