package io.towpath.source.progress;

import io.towpath.record.ClusterTime;
import java.nio.ByteBuffer;

/**
 * Where the record ids of a plan are valid. Every member of a replica set numbers records in its own way, and again when it is synced again,
 * so a plan by record ids belongs to one table of one member.
 *
 * @param member host and port, as the replica set names it
 * @param table WiredTiger's name of the table, which no other member has
 * @param time the cluster time as of which the copy reads as long as the server holds it
 */
public record RecordIds(String member, String table, ClusterTime time) {
    /** A record id as the bound of a plan, or as the position of a read. */
    public static byte[] position(long recordId) {
        return ByteBuffer.allocate(Long.BYTES).putLong(recordId).array();
    }

    public static long recordId(byte[] position) {
        return ByteBuffer.wrap(position).getLong();
    }
}
