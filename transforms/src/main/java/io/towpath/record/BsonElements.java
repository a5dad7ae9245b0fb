package io.towpath.record;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.Optional;

/**
 * Walks the elements of one BSON document in its bytes. Decodes nothing, so duplicate names and invalid UTF-8 stay as they
 * are. Throws {@link ContractException} when the bytes end early or hold an unknown type.
 */
public final class BsonElements {
    public static final byte DOUBLE = 0x01;
    public static final byte STRING = 0x02;
    public static final byte DOCUMENT = 0x03;
    public static final byte ARRAY = 0x04;
    static final byte BINARY = 0x05;
    static final byte OBJECT_ID = 0x07;
    static final byte BOOLEAN = 0x08;
    static final byte DATE = 0x09;
    static final byte REGEX = 0x0B;
    static final byte DB_POINTER = 0x0C;
    static final byte CODE = 0x0D;
    public static final byte SYMBOL = 0x0E;
    static final byte CODE_WITH_SCOPE = 0x0F;
    public static final byte INT32 = 0x10;
    public static final byte TIMESTAMP = 0x11;
    public static final byte INT64 = 0x12;
    public static final byte DECIMAL128 = 0x13;

    private static final byte[] SIZES = sizes();

    private static final VarHandle INTS = MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);
    private static final VarHandle LONGS = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);

    public static final byte[] ID = {'_', 'i', 'd'};

    private final byte[] bytes;
    private final int start;
    private final int end;
    private int position;
    private byte type;
    private int nameStart;
    private int valueStart;

    public BsonElements(byte[] bytes, int offset) {
        this.bytes = bytes;
        need(offset, 5, bytes.length);
        int length = (int) INTS.get(bytes, offset);
        if (length < 5) throw damaged(offset);
        need(offset, length, bytes.length);
        this.start = offset;
        this.end = offset + length - 1;
        if (bytes[end] != 0) throw damaged(end);
        this.position = offset + 4;
    }

    /** The {@code _id} of a document, as the current element; empty when it has none. */
    public static Optional<BsonElements> atId(byte[] document) {
        BsonElements elements = new BsonElements(document, 0);
        while (elements.next()) if (elements.nameIs(ID)) return Optional.of(elements);
        return Optional.empty();
    }

    /** Steps to the next element; false at the document's end. */
    public boolean next() {
        if (position == end) return false;
        type = bytes[position];
        nameStart = position + 1;
        valueStart = afterZero(nameStart);
        position = valueEnd(valueStart);
        return true;
    }

    /** The length that the document itself declares. */
    public int length() {
        return end + 1 - start;
    }

    public byte type() {
        return type;
    }

    public int nameStart() {
        return nameStart;
    }

    public int valueStart() {
        return valueStart;
    }

    public int valueEnd() {
        return position;
    }

    /** The value as a little-endian 32-bit number, {@code at} bytes into it. */
    public int int32(int at) {
        return (int) INTS.get(bytes, valueStart + at);
    }

    /** The value as a little-endian 64-bit number, {@code at} bytes into it. */
    public long int64(int at) {
        return (long) LONGS.get(bytes, valueStart + at);
    }

    /** The element's name; loses what is not UTF-8 in it. */
    String name() {
        return new String(bytes, nameStart, valueStart - 1 - nameStart, UTF_8);
    }

    public boolean nameIs(byte[] name) {
        return Arrays.equals(bytes, nameStart, valueStart - 1, name, 0, name.length);
    }

    private int valueEnd(int start) {
        int fixed = SIZES[type & 0xFF];
        long size = fixed >= 0 ? fixed : variableSize(start);
        if (start + size > end) throw damaged(start);
        return (int) (start + size);
    }

    private long variableSize(int start) {
        return switch (type) {
            case STRING, CODE, SYMBOL -> 4L + length(start);
            case DOCUMENT, ARRAY, CODE_WITH_SCOPE -> length(start);
            case BINARY -> 5L + length(start);
            case DB_POINTER -> 16L + length(start);
            case REGEX -> afterZero(afterZero(start)) - start;
            default -> throw damaged(nameStart - 1);
        };
    }

    /** The size of a value by its type; -1 for types whose values differ in size, and for unknown ones. */
    private static byte[] sizes() {
        byte[] sizes = new byte[256];
        Arrays.fill(sizes, (byte) -1);
        for (int type : new int[] {0x06, 0x0A, 0x7F, 0xFF}) sizes[type] = 0; // undefined, null, MaxKey, MinKey
        sizes[BOOLEAN] = 1;
        sizes[INT32] = 4;
        for (byte type : new byte[] {DOUBLE, DATE, TIMESTAMP, INT64}) sizes[type] = 8;
        sizes[OBJECT_ID] = 12;
        sizes[DECIMAL128] = 16;
        return sizes;
    }

    private int length(int at) {
        need(at, 4, end);
        int length = (int) INTS.get(bytes, at);
        if (length < 0) throw damaged(at);
        return length;
    }

    private int afterZero(int from) {
        for (int i = from; i < end; i++) {
            if (bytes[i] == 0) return i + 1;
        }
        throw damaged(from);
    }

    private static void need(int at, int count, int limit) {
        if (count > limit - at) {
            throw new ContractException(
                    "BSON is cut off: %d bytes needed at byte %d of %d".formatted(count, at, limit));
        }
    }

    static ContractException damaged(int at) {
        return new ContractException("BSON is damaged at byte " + at);
    }
}
