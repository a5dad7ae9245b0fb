package io.towpath.record;

import static java.nio.charset.StandardCharsets.US_ASCII;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;

/**
 * A record's key: the BSON of {@code {_id: …}} in a canonical form. Two {@code _id}s have the same bytes exactly when MongoDB holds
 * them equal (under the simple collation), so one document has one key and one partition.
 */
public final class CanonicalKey {
    private static final int TYPE_AT = 4;
    private static final int VALUE_AT = TYPE_AT + 1 + BsonElements.ID.length + 1;

    private final byte[] source;
    private ByteBuffer out;

    private CanonicalKey(byte[] source) {
        this.source = source;
        this.out = ByteBuffer.allocate(64).order(ByteOrder.LITTLE_ENDIAN);
    }

    /** The key of a document, or of anything else in BSON with an {@code _id}. Throws {@link ContractException} when it has none. */
    public static byte[] of(byte[] document) {
        return BsonElements.atId(document)
                .map(id -> new CanonicalKey(document).write(id))
                .orElseThrow(CanonicalKey::noId);
    }

    /** Whether these bytes are the key of some document. */
    public static boolean isKey(byte[] bytes) {
        BsonElements id = new BsonElements(bytes, 0);
        if (!id.next() || !id.nameIs(BsonElements.ID)) return false;
        return isPlain(id.type()) ? !id.next() : Arrays.equals(of(bytes), bytes);
    }

    /** Whether this is the key of the document. Throws as {@link #of}. */
    public static boolean isKeyOf(byte[] key, byte[] document) {
        BsonElements id = BsonElements.atId(document).orElseThrow(CanonicalKey::noId);
        if (!isPlain(id.type())) return Arrays.equals(new CanonicalKey(document).write(id), key);
        return key[TYPE_AT] == id.type()
                && Arrays.equals(document, id.valueStart(), id.valueEnd(), key, VALUE_AT, key.length - 1);
    }

    /** Whether the canonical form of such a value is its bytes. */
    private static boolean isPlain(byte type) {
        return switch (type) {
            case BsonElements.DOUBLE,
                    BsonElements.INT32,
                    BsonElements.DECIMAL128,
                    BsonElements.SYMBOL,
                    BsonElements.DOCUMENT,
                    BsonElements.ARRAY,
                    BsonElements.CODE_WITH_SCOPE -> false;
            default -> true;
        };
    }

    private static ContractException noId() {
        return new ContractException("a document without an _id has no key");
    }

    private byte[] write(BsonElements id) {
        int start = beginDocument();
        element(id, BsonElements.ID);
        endDocument(start);
        byte[] key = new byte[out.position()];
        out.flip().get(key);
        return key;
    }

    private void element(BsonElements element, byte[] name) {
        room(name.length + 2);
        int typeAt = out.position();
        out.put(element.type()).put(name).put((byte) 0);
        switch (element.type()) {
            case BsonElements.DOUBLE, BsonElements.INT32, BsonElements.DECIMAL128 -> number(
                    typeAt, CanonicalNumber.of(element));
            case BsonElements.SYMBOL -> {
                out.put(typeAt, BsonElements.STRING);
                copy(element.valueStart(), element.valueEnd());
            }
            case BsonElements.DOCUMENT, BsonElements.ARRAY -> document(element.valueStart(), element.type());
            case BsonElements.CODE_WITH_SCOPE -> codeWithScope(element);
            default -> copy(element.valueStart(), element.valueEnd());
        }
    }

    private void number(int typeAt, CanonicalNumber number) {
        room(16);
        out.put(typeAt, number.type()).putLong(number.low());
        if (number.type() == BsonElements.DECIMAL128) out.putLong(number.high());
    }

    private void document(int offset, byte type) {
        BsonElements elements = new BsonElements(source, offset);
        int start = beginDocument();
        for (int index = 0; elements.next(); index++) {
            // the server does not look at the names inside an array
            element(
                    elements,
                    type == BsonElements.ARRAY ? Integer.toString(index).getBytes(US_ASCII) : name(elements));
        }
        endDocument(start);
    }

    private void codeWithScope(BsonElements element) {
        int scope = element.valueStart() + 8 + element.int32(4);
        int start = out.position();
        room(4);
        out.putInt(0);
        copy(element.valueStart() + 4, scope);
        document(scope, BsonElements.DOCUMENT);
        out.putInt(start, out.position() - start);
    }

    private byte[] name(BsonElements element) {
        byte[] name = new byte[element.valueStart() - 1 - element.nameStart()];
        System.arraycopy(source, element.nameStart(), name, 0, name.length);
        return name;
    }

    private int beginDocument() {
        room(5);
        int start = out.position();
        out.putInt(0);
        return start;
    }

    private void endDocument(int start) {
        room(1);
        out.put((byte) 0).putInt(start, out.position() - start);
    }

    private void copy(int from, int to) {
        if (from > to || to > source.length) throw BsonElements.damaged(from);
        room(to - from);
        out.put(source, from, to - from);
    }

    private void room(int count) {
        if (out.remaining() >= count) return;
        ByteBuffer larger = ByteBuffer.allocate(Math.max(out.capacity() * 2, out.position() + count));
        out = larger.order(ByteOrder.LITTLE_ENDIAN).put(out.flip());
    }
}
