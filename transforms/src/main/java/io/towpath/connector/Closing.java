package io.towpath.connector;

/** Closes several resources, whatever goes wrong with some of them. */
public final class Closing {
    private Closing() {}

    /** In this order; nulls are skipped. Throws the first error once all are closed, with the others suppressed. */
    public static void all(AutoCloseable... parts) {
        Throwable first = null;
        for (AutoCloseable part : parts) {
            try {
                if (part != null) part.close();
            } catch (Throwable error) {
                if (first == null) first = error;
                else first.addSuppressed(error);
            }
        }
        if (first instanceof Error error) throw error;
        if (first instanceof RuntimeException error) throw error;
        if (first != null) throw new IllegalStateException(first);
    }
}
