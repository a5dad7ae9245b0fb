package io.towpath.sink;

import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Kafka did not do what a task requested of it, or not in time. */
final class Unanswered extends RuntimeException {
    private static final long serialVersionUID = 1;

    Unanswered(String failure) {
        super(failure + ": Kafka does not answer");
    }

    private Unanswered(String failure, Exception cause) {
        super(failure + ": " + cause, cause);
    }

    /** The result of a request. Throws {@link Unanswered}, with this description of the failure, when there is none in time. */
    static <T> T await(Future<T> request, long patienceS, String failure) {
        try {
            return request.get(patienceS, TimeUnit.SECONDS);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new Unanswered(failure, error);
        } catch (ExecutionException | TimeoutException error) {
            throw new Unanswered(failure, error);
        }
    }
}
