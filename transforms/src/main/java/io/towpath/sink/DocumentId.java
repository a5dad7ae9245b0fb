package io.towpath.sink;

import com.mongodb.MongoNamespace;
import java.nio.ByteBuffer;

/** The identity of a document at the destination. */
record DocumentId(MongoNamespace namespace, ByteBuffer id) {}
