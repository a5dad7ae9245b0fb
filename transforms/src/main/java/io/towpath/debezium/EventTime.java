package io.towpath.debezium;

import io.towpath.record.ClusterTime;
import java.nio.ByteBuffer;
import java.util.Base64;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.connect.errors.DataException;
import org.bson.BSONException;
import org.bson.BsonDocument;
import org.bson.RawBsonDocument;

/** The cluster time in Debezium's offset, and in a change stream's resume token. */
public final class EventTime {
    private static final byte TIMESTAMP = (byte) 0x82;
    /** Behind the cluster time come the version of the format, an integer of one byte, and the type of the token: 0, or 128 for an event. */
    private static final String ONE_BYTE = "2B";

    private static final int VERSION_DIGITS = 2;
    private static final String HIGH_WATER_MARK = "29";
    private static final int TYPE_AT = 18 + ONE_BYTE.length() + VERSION_DIGITS;

    private EventTime() {}

    /** The time of the offset's event; without an event, as with heartbeats, the time of the stream's position. Empty for null. */
    public static Optional<ClusterTime> of(Map<String, ?> offset) {
        if (offset == null) return Optional.empty();
        if (offset.get("sec") instanceof Number seconds
                && seconds.intValue() != -1
                && offset.get("ord") instanceof Number ordinal) {
            return Optional.of(new ClusterTime(
                    Integer.toUnsignedLong(seconds.intValue()), Integer.toUnsignedLong(ordinal.intValue())));
        }
        return offset.get("resume_token") instanceof String token ? Optional.of(ofToken(token)) : Optional.empty();
    }

    /** The time up to which every event precedes a record with this offset. Empty for null. */
    public static Optional<ClusterTime> before(Map<String, ?> offset) {
        return of(offset).map(time -> isHighWaterMark(offset) ? time : time.previous());
    }

    /**
     * Whether the offset is that of a heartbeat after an empty batch. The token of such a batch is of no event: the server has returned every
     * event up to its time, also those that share it.
     */
    private static boolean isHighWaterMark(Map<String, ?> offset) {
        if (!(offset.get("resume_token") instanceof String token)) return false;
        String hex = data(new RawBsonDocument(Base64.getDecoder().decode(token)));
        return hex.startsWith(ONE_BYTE, TYPE_AT - ONE_BYTE.length() - VERSION_DIGITS)
                && hex.startsWith(HIGH_WATER_MARK, TYPE_AT);
    }

    /** Of a token as Debezium keeps it in its offsets, in Base64 of the BSON. */
    private static ClusterTime ofToken(String token) {
        try {
            return ofToken(new RawBsonDocument(Base64.getDecoder().decode(token)), token);
        } catch (IllegalArgumentException | BSONException error) {
            throw new DataException("resume token '%s' cannot be read".formatted(token), error);
        }
    }

    private static String data(BsonDocument token) {
        return token.getString("_data").getValue();
    }

    /** The cluster time that a token, {@code {_data: "<hex>"}}, begins with. */
    public static ClusterTime ofToken(BsonDocument token) {
        return ofToken(token, token.toJson());
    }

    private static ClusterTime ofToken(BsonDocument token, String text) {
        String hex = data(token);
        ByteBuffer data = ByteBuffer.wrap(HexFormat.of().parseHex(hex, 0, Math.min(hex.length(), 18)));
        if (data.remaining() == 9 && data.get() == TIMESTAMP) {
            return new ClusterTime(Integer.toUnsignedLong(data.getInt()), Integer.toUnsignedLong(data.getInt()));
        }
        throw new DataException("resume token '%s' does not begin with a cluster time".formatted(text));
    }
}
