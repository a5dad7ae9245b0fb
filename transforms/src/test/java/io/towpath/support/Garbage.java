package io.towpath.support;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.Random;

/** Bytes that are no BSON, or no longer, or more than anyone stores. */
public final class Garbage {
    private static final String[] FOREIGN = {
        "",
        "null",
        "{}",
        "{\"_id\": 5, \"x\": 1}",
        "{\"schema\":null,\"payload\":{\"before\":null,\"after\":\"{\\\"_id\\\": 5}\",\"op\":\"c\",\"ts_ms\":1}}",
        "{\"id\":\"{\\\"$oid\\\": \\\"64b7f3a2c9d4e5f6a7b8c9d0\\\"}\"}",
        "\u0001bson:\u0005\u0000\u0000\u0000\u0000",
        "<html><body>502 Bad Gateway</body></html>",
    };
    private static final byte[] AVRO = {0, 0, 0, 0, 42, 2, 10, 'h', 'e', 'l', 'l', 'o', 0, 6};
    private static final int[] LENGTHS = {0, 1, 4, 5, -1, 0x7FFFFFFF, 0x80000000, 0x01000000};

    private final Random random;

    public Garbage(Random random) {
        this.random = random;
    }

    /** Bytes made of these, or of nothing. */
    public byte[] like(byte[] good) {
        return switch (random.nextInt(12)) {
            case 0 -> bytes(random.nextInt(200));
            case 1 -> framed(bytes(random.nextInt(200)));
            case 2 -> Arrays.copyOf(good, random.nextInt(good.length));
            case 3 -> Raw.join(good, bytes(1 + random.nextInt(9)));
            case 4, 5 -> withLength(good);
            case 6, 7 -> flipped(good);
            case 8 -> spliced(good);
            case 9 -> FOREIGN[random.nextInt(FOREIGN.length)].getBytes(UTF_8);
            case 10 -> AVRO.clone();
            default -> nested(random.nextInt(100) == 0 ? 100_000 : 251 + random.nextInt(200), random.nextBoolean());
        };
    }

    public byte[] bytes(int count) {
        byte[] bytes = new byte[count];
        random.nextBytes(bytes);
        return bytes;
    }

    /** A frame of the right length around anything. */
    private static byte[] framed(byte[] body) {
        return Raw.document(body);
    }

    private byte[] flipped(byte[] good) {
        byte[] bad = good.clone();
        for (int i = random.nextInt(4); i >= 0; i--) bad[random.nextInt(bad.length)] ^= (byte) (1 << random.nextInt(8));
        return bad;
    }

    /** A length, or what lies where one may be, is another. */
    private byte[] withLength(byte[] good) {
        byte[] bad = good.clone();
        if (bad.length < 8) return bad;
        int at = 4 + random.nextInt(bad.length - 7);
        int length = random.nextBoolean() ? LENGTHS[random.nextInt(LENGTHS.length)] : random.nextInt(2 * bad.length);
        ByteBuffer.wrap(bad).order(ByteOrder.LITTLE_ENDIAN).putInt(at, length);
        return bad;
    }

    /** Bytes taken out or put in, with the whole's own length right. */
    private byte[] spliced(byte[] good) {
        int at = random.nextInt(good.length);
        int gone = random.nextInt(Math.min(12, good.length - at) + 1);
        byte[] bad = Raw.join(
                Arrays.copyOf(good, at), bytes(random.nextInt(12)), Arrays.copyOfRange(good, at + gone, good.length));
        if (bad.length >= 4) ByteBuffer.wrap(bad).order(ByteOrder.LITTLE_ENDIAN).putInt(0, bad.length);
        return bad;
    }

    /** {@code {_id: 5, a: {a: {a: …}}}}, or {@code {_id: {a: {a: …}}}}. */
    private static byte[] nested(int depth, boolean inId) {
        int head = inId ? 4 : 4 + 9;
        ByteBuffer out = ByteBuffer.allocate(head + 8 * (depth + 2) + 16).order(ByteOrder.LITTLE_ENDIAN);
        out.putInt(0);
        if (!inId) out.put((byte) 16).put("_id\0".getBytes(UTF_8)).putInt(5);
        byte[] name = inId ? "_id\0".getBytes(UTF_8) : "a\0".getBytes(UTF_8);
        int[] starts = new int[depth];
        for (int i = 0; i < depth; i++) {
            out.put((byte) 3).put(i == 0 ? name : new byte[] {'a', 0});
            starts[i] = out.position();
            out.putInt(0);
        }
        for (int i = depth - 1; i >= 0; i--) {
            out.put((byte) 0);
            out.putInt(starts[i], out.position() - starts[i]);
        }
        out.put((byte) 0).putInt(0, out.position());
        return Arrays.copyOf(out.array(), out.position());
    }
}
