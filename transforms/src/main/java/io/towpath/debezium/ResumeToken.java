package io.towpath.debezium;

import io.towpath.record.ClusterTime;
import java.nio.ByteBuffer;
import java.util.Base64;
import java.util.HexFormat;
import org.apache.kafka.connect.errors.DataException;
import org.bson.BSONException;
import org.bson.BsonDocument;
import org.bson.RawBsonDocument;

/** A change stream's resume token: {@code {_data: "<hex>"}}. */
public final class ResumeToken {
    private static final byte TIMESTAMP = (byte) 0x82;

    private ResumeToken() {}

    /** The cluster time of a token as Debezium keeps it in its offsets, in Base64 of the BSON. */
    static ClusterTime clusterTime(String token) {
        try {
            return clusterTime(new RawBsonDocument(Base64.getDecoder().decode(token)), token);
        } catch (IllegalArgumentException | BSONException error) {
            throw new DataException("resume token '%s' cannot be read".formatted(token), error);
        }
    }

    /** The cluster time that a token begins with. */
    public static ClusterTime clusterTime(BsonDocument token) {
        return clusterTime(token, token.toJson());
    }

    private static ClusterTime clusterTime(BsonDocument token, String shown) {
        String hex = token.getString("_data").getValue();
        ByteBuffer data = ByteBuffer.wrap(HexFormat.of().parseHex(hex, 0, Math.min(hex.length(), 18)));
        if (data.remaining() == 9 && data.get() == TIMESTAMP) {
            return new ClusterTime(Integer.toUnsignedLong(data.getInt()), Integer.toUnsignedLong(data.getInt()));
        }
        throw new DataException("resume token '%s' does not begin with a cluster time".formatted(shown));
    }
}
