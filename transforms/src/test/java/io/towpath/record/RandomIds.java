package io.towpath.record;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.towpath.support.Raw;
import java.util.Random;

/** Random {@code _id}s of all types that a server stores, nested too, close enough to one another that every byte decides somewhere. */
public final class RandomIds {
    private static final int DEEPEST = 3;
    private static final String[] TEXTS = {
        "", "\0", "\0\0", "a", "a\0", "a\0b", "ab", "b", "A", "é", "\ud83d\ude00", "\uffee"
    };
    private static final String[] NAMES = {"", "a", "ab", "b", "B", "é", "a.b", "0", "1"};

    private final Random random;
    private final NearlyEqual numbers;

    public RandomIds(long seed) {
        random = new Random(seed);
        numbers = new NearlyEqual(seed);
    }

    /** A document {@code {_id: …}}. */
    public byte[] document() {
        return random.nextInt(3) == 0 ? numbers.document() : Raw.document(value("_id", 0));
    }

    private byte[] value(String name, int depth) {
        int kinds =
                depth == 0 ? 14 : 17; // an _id is no array, no regular expression and not undefined, but may hold them
        return switch (random.nextInt(depth < DEEPEST ? kinds : 12)) {
            case 0 -> Raw.element(random.nextBoolean() ? 0xFF : 0x7F, name);
            case 1 -> Raw.element(10, name);
            case 2 -> Raw.int32(name, random.nextInt(7) - 3);
            case 3 -> text(name);
            case 4 -> binary(name);
            case 5 -> Raw.element(7, name, bytes(12));
            case 6 -> Raw.element(8, name, new byte[] {(byte) random.nextInt(2)});
            case 7 -> Raw.element(9, name, bytes(8));
            case 8 -> Raw.element(
                    17, name, new byte[] {1}, bytes(7)); // not (0, 0), in place of which the server puts the time
            case 9 -> Raw.element(12, name, prefixed(pick(TEXTS).replace("\0", "x")), bytes(12));
            case 10 -> Raw.element(13, name, prefixed(pick(TEXTS)));
            case 11 -> Raw.doubleOf(name, (random.nextInt(13) - 6) / 2.0);
            case 12 -> Raw.embedded(name, inside(depth + 1, false));
            case 13 -> Raw.codeWithScope(name, pick(TEXTS), inside(depth + 1, false));
            case 14 -> Raw.array(name, inside(depth + 1, true));
            case 15 -> Raw.element(
                    11, name, (pick(NAMES) + "\0" + (random.nextBoolean() ? "i" : "im") + "\0").getBytes(UTF_8));
            default -> Raw.element(6, name);
        };
    }

    private byte[][] inside(int depth, boolean array) {
        byte[][] elements = new byte[random.nextInt(4)][];
        for (int i = 0; i < elements.length; i++) elements[i] = value(array ? Integer.toString(i) : pick(NAMES), depth);
        return elements;
    }

    private byte[] text(String name) {
        String text = pick(TEXTS) + (random.nextBoolean() ? pick(TEXTS) : "");
        return random.nextBoolean() ? Raw.string(name, text) : Raw.symbol(name, text);
    }

    private byte[] binary(String name) {
        int length = random.nextInt(4);
        byte subtype = (byte) (random.nextBoolean() ? 0 : 0x80 + random.nextInt(2));
        return Raw.element(5, name, new byte[] {(byte) length, 0, 0, 0, subtype}, bytes(length));
    }

    /** Bytes that differ in one place, with the highest bit or without. */
    private byte[] bytes(int length) {
        byte[] bytes = new byte[length];
        if (length > 0) bytes[random.nextInt(length)] = (byte) (random.nextInt(5) * 63);
        return bytes;
    }

    private static byte[] prefixed(String text) {
        byte[] utf8 = text.getBytes(UTF_8);
        return Raw.join(new byte[] {(byte) (utf8.length + 1), 0, 0, 0}, utf8, new byte[1]);
    }

    private String pick(String[] choices) {
        return choices[random.nextInt(choices.length)];
    }
}
