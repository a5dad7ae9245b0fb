package io.towpath.source;

import io.towpath.record.BsonOrder;
import io.towpath.record.ClusterTime;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;

/**
 * A stretch of a range that was read at one moment. A range that was interrupted goes on at a later moment, so it has several.
 *
 * @param time every event of the stretch up to this moment is in its rows
 * @param upTo key of the last {@code _id} of the stretch; empty when it reaches to the end of its range
 */
record Piece(ClusterTime time, byte[] upTo) {
    static final byte[] END = {};

    boolean reaches(byte[] key) {
        return upTo.length == 0 || BsonOrder.compare(key, upTo) <= 0;
    }

    static String encode(List<Piece> pieces) {
        int length = pieces.stream()
                .mapToInt(piece -> Long.BYTES + Integer.BYTES + piece.upTo.length)
                .sum();
        ByteBuffer buffer = ByteBuffer.allocate(length);
        pieces.forEach(piece ->
                buffer.putLong(piece.time.bits()).putInt(piece.upTo.length).put(piece.upTo));
        return Base64.getEncoder().encodeToString(buffer.array());
    }

    static List<Piece> decode(String text) {
        ByteBuffer buffer = ByteBuffer.wrap(Base64.getDecoder().decode(text));
        List<Piece> pieces = new ArrayList<>();
        while (buffer.hasRemaining()) {
            ClusterTime time = ClusterTime.ofBits(buffer.getLong());
            byte[] upTo = new byte[buffer.getInt()];
            buffer.get(upTo);
            pieces.add(new Piece(time, upTo));
        }
        return pieces;
    }
}
