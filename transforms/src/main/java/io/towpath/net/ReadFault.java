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

    /**
     * Whether the collection is not there as of the time that the read asks for, as the time is out of the server's reach, or as a view has
     * its name by now.
     */
    public static boolean isUnavailable(MongoException error) {
        return isAboutTime(error) || ServerError.CommandNotSupportedOnView.is(error) || isOfAView(error);
    }

    /** Whether the read has an option that no read of a view may have, such as the bounds of a range. */
    private static boolean isOfAView(MongoException error) {
        return ServerError.InvalidPipelineOperator.is(error)
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
