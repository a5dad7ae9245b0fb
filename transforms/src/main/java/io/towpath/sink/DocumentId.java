package io.towpath.sink;

import com.mongodb.MongoNamespace;
import java.nio.ByteBuffer;

/** The identity of a document at the destination. {@code id} is the key of its records, the same for all of its changes. */
record DocumentId(MongoNamespace namespace, ByteBuffer id) {}
