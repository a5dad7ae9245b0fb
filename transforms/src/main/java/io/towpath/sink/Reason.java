package io.towpath.sink;

import com.mongodb.MongoCommandException;

/** An error's message, short enough to be shown: without the server's whole response. */
final class Reason {
    private Reason() {}

    static String of(RuntimeException error) {
        if (error instanceof MongoCommandException answer)
            return "%s (%s, code %d)"
                    .formatted(answer.getErrorMessage(), answer.getErrorCodeName(), answer.getErrorCode());
        return String.valueOf(error.getMessage());
    }
}
