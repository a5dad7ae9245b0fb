package io.towpath.source.rules;

import static java.nio.charset.StandardCharsets.US_ASCII;

import io.towpath.record.BsonElements;
import io.towpath.record.CanonicalNumber;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.security.GeneralSecurityException;
import java.util.HexFormat;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** Texts in place of values: the same for values that are equal to MongoDB, and for someone without the key of no use. */
final class KeyedHash {
    private static final String ALGORITHM = "HmacSHA256";
    /** Of a hash, of which a text has two digits each: enough that no two values of a collection meet. */
    private static final int BYTES = 16;

    private static final int ID_BYTES = 8;
    private static final byte[] HEX = "0123456789abcdef".getBytes(US_ASCII);

    private final Mac mac;

    KeyedHash(byte[] key) {
        try {
            mac = Mac.getInstance(ALGORITHM);
            mac.init(new SecretKeySpec(key, ALGORITHM));
        } catch (GeneralSecurityException impossible) {
            throw new IllegalStateException(impossible); // every Java has it, and takes any key with it
        }
    }

    /** Tells keys apart, and says nothing else of them. */
    String id() {
        return HexFormat.of().formatHex(mac.doFinal("towpath".getBytes(US_ASCII)), 0, ID_BYTES);
    }

    /** The value of a string in BSON, in place of this element's. */
    byte[] of(byte[] bytes, BsonElements element) {
        switch (element.type()) {
            case BsonElements.DOUBLE, BsonElements.INT32, BsonElements.INT64, BsonElements.DECIMAL128 -> update(
                    CanonicalNumber.of(element));
            case BsonElements.SYMBOL -> update(BsonElements.STRING, bytes, element);
            default -> update(element.type(), bytes, element);
        }
        byte[] digest = mac.doFinal();
        byte[] text = new byte[Integer.BYTES + 2 * BYTES + 1];
        text[0] = 2 * BYTES + 1;
        for (int index = 0; index < BYTES; index++) {
            text[Integer.BYTES + 2 * index] = HEX[digest[index] >> 4 & 0xF];
            text[Integer.BYTES + 2 * index + 1] = HEX[digest[index] & 0xF];
        }
        return text;
    }

    private void update(byte type, byte[] bytes, BsonElements element) {
        mac.update(type);
        mac.update(bytes, element.valueStart(), element.valueEnd() - element.valueStart());
    }

    private void update(CanonicalNumber number) {
        ByteBuffer value = ByteBuffer.allocate(1 + 2 * Long.BYTES)
                .order(ByteOrder.LITTLE_ENDIAN)
                .put(number.type())
                .putLong(number.low());
        if (number.type() == BsonElements.DECIMAL128) value.putLong(number.high());
        mac.update(value.flip());
    }
}
