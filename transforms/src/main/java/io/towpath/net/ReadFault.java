package io.towpath.net;

import com.mongodb.MongoConnectionPoolClearedException;
import com.mongodb.MongoException;
import com.mongodb.MongoInterruptedException;
import com.mongodb.MongoSocketException;
import com.mongodb.MongoTimeoutException;

/** What a failed read of MongoDB means for the reader. */
public final class ReadFault {
    private ReadFault() {}

    /** Whether the same read may succeed later. */
    public static boolean isTransient(MongoException error) {
        return error instanceof MongoSocketException
                || error instanceof MongoTimeoutException
                || error instanceof MongoConnectionPoolClearedException // another operation has lost its connection
                || error.hasErrorLabel("RetryableReadError")
                || isAhead(error)
                || ServerError.of(error.getCode())
                        .filter(ServerError::isTransientForReads)
                        .isPresent();
    }

    /** Whether the member has not heard yet of the cluster time that the read asks for, as after its process was suspended. */
    private static boolean isAhead(MongoException error) {
        return ServerError.InvalidOptions.is(error)
                && error.getMessage().contains("greater than the current clusterTime");
    }

    /** Whether the server no longer has, or does not have yet, the cluster time that the read asks for. */
    public static boolean isAboutTime(MongoException error) {
        return ServerError.SnapshotTooOld.is(error) || ServerError.SnapshotUnavailable.is(error);
    }

    /** Whether the collection is capped, and the server reads none such as of a cluster time: before 8.0, none does. */
    public static boolean isOfACapped(MongoException error) {
        return ServerError.SnapshotUnavailable.is(error) && error.getMessage().contains("capped collection");
    }

    /** Whether a view has the collection's name by now, and the command, or an option of it, is none for views. */
    public static boolean isOfAView(MongoException error) {
        return ServerError.CommandNotSupportedOnView.is(error)
                || ServerError.InvalidPipelineOperator.is(error)
                        && error.getMessage().contains("not supported in aggregation");
    }

    public static boolean isInterrupt(MongoException error) {
        return error instanceof MongoInterruptedException
                || Thread.currentThread().isInterrupted();
    }

    /** The message, with the server's code if it has one. */
    public static String message(MongoException error) {
        return error.getCode() > 0 ? "%s (code %d)".formatted(error.getMessage(), error.getCode()) : error.getMessage();
    }
}
