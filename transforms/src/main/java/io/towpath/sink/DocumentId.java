package io.towpath.sink;

import com.mongodb.MongoNamespace;
import java.nio.ByteBuffer;

/** One document at the destination. */
record Document(MongoNamespace namespace, ByteBuffer id) {}
