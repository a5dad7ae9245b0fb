package io.towpath.sink;

import com.mongodb.MongoBulkWriteException;
import com.mongodb.MongoCommandException;
import com.mongodb.MongoException;
import com.mongodb.MongoSecurityException;
import com.mongodb.MongoSocketException;
import com.mongodb.MongoWriteConcernException;
import io.towpath.net.ServerError;
import java.util.Optional;
import java.util.regex.Pattern;
import org.bson.BSONException;
import org.bson.BsonInvalidOperationException;

/** What an error of the server or the driver means for a transaction. */
enum Verdict {
    /** Not about the records: the same transaction may succeed later. */
    TRANSIENT,
    /** About one write, which the destination will never take. */
    REFUSED,
    /** The document to insert exists already. */
    PRESENT,
    /** Something is too large or is no BSON, or the error is about a write that it does not name: smaller transactions will show. */
    UNCLEAR,
    /** Neither a retry nor another record will help; or the error is our own, and no record is to blame for it. */
    HOPELESS;

    /** Behind the collection's name, in the server's message. A clustered collection has no index on {@code _id}. */
    private static final Pattern ON_ID = Pattern.compile("( index: _id_)?( collation: \\{.*?\\})? dup key: ");

    /** Of an error that names one of the writes. */
    static Verdict of(WriteCommand.Refusal refusal) {
        if (refusal.code() == ServerError.DuplicateKey.code() && isOnId(refusal))
            return refusal.write().kind() == Write.Kind.INSERT ? PRESENT : TRANSIENT; // two upserts at once
        if (ServerError.isDiskFull(refusal.code(), refusal.reason())) return TRANSIENT;
        Verdict verdict = of(refusal.code());
        return verdict == UNCLEAR ? REFUSED : verdict;
    }

    /** Only by what the server says before the duplicate values, and not in the collection's name: both are text of users. */
    private static boolean isOnId(WriteCommand.Refusal refusal) {
        String namespace = refusal.write().namespace().getFullName();
        int named = refusal.reason().indexOf(namespace);
        if (named < 0) return false;
        return ON_ID.matcher(refusal.reason().substring(named + namespace.length()))
                .lookingAt();
    }

    /** Of any other error. */
    static Verdict of(RuntimeException error) {
        if (error instanceof MongoBulkWriteException bulk && bulk.getWriteConcernError() != null)
            return of(bulk.getWriteConcernError().getCode());
        if (!(error instanceof MongoException mongoError))
            return error instanceof BSONException || error instanceof BsonInvalidOperationException
                    ? UNCLEAR
                    : HOPELESS;
        if (mongoError.hasErrorLabel(MongoException.TRANSIENT_TRANSACTION_ERROR_LABEL)
                || mongoError.hasErrorLabel(MongoException.UNKNOWN_TRANSACTION_COMMIT_RESULT_LABEL)
                || mongoError instanceof MongoSocketException
                || mongoError instanceof MongoSecurityException) return TRANSIENT;
        if (ServerError.isDiskFull(mongoError.getCode(), mongoError.getMessage())) return TRANSIENT;
        if (mongoError instanceof MongoWriteConcernException concern) return of(concern.getCode());
        if (mongoError.getCode() > 0) return of(ServerError.of(mongoError));
        return TRANSIENT; // the driver's own: no server available, a timeout, an interrupt
    }

    private static Verdict of(int code) {
        return of(ServerError.of(code));
    }

    private static Verdict of(Optional<ServerError> error) {
        return error.map(Verdict::of).orElse(UNCLEAR);
    }

    private static Verdict of(ServerError error) {
        if (error.isTransientForWrites()) return TRANSIENT;
        return error.isHopelessForWrites() ? HOPELESS : UNCLEAR;
    }

    /** Whether, of a transient error, only a smaller transaction may succeed. */
    static boolean isTooLarge(RuntimeException error) {
        return error instanceof MongoException mongoError
                && ServerError.of(mongoError.getCode())
                        .filter(ServerError::isTooLarge)
                        .isPresent();
    }

    /** The error's message, short enough to be shown: without the server's whole response. */
    static String message(RuntimeException error) {
        if (error instanceof MongoCommandException answer)
            return "%s (%s, code %d)"
                    .formatted(answer.getErrorMessage(), answer.getErrorCodeName(), answer.getErrorCode());
        return String.valueOf(error.getMessage());
    }
}
