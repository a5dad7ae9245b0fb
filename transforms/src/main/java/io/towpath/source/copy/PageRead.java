package io.towpath.source.copy;

import io.towpath.source.progress.Page;
import java.util.Iterator;

/** One read of a range, or of the rest of it, as of one cluster time: page by page, the last one marked. Throws the driver's exceptions. */
interface PageRead extends Iterator<Page>, AutoCloseable {
    /** The most that a page holds. */
    record Size(int documents, long bytes) {}

    @Override
    void close();
}
