package io.towpath.source.rules;

import static java.nio.charset.StandardCharsets.US_ASCII;

import io.towpath.record.BsonElements;
import io.towpath.record.Change;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.Arrays;

/** Applies the rules of one collection to values of records, before these are made (docs/design/rules.md). Not for several threads. */
public final class Mask {
    /** Of a collection without rules. */
    static final Mask NONE = new Mask(Place.ofDocument(), null);

    private static final byte[] SET = Change.SET.getBytes(US_ASCII);
    private static final byte NULL = 0x0A;
    private static final byte UNDEFINED = 0x06;
    /** The length of a document without any field. */
    private static final int EMPTY = 5;

    private static final VarHandle INTS = MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);

    private final Place document;
    private final KeyedHash hash;
    private byte[] in;
    private byte[] out;
    /** Bytes in {@link #out}. */
    private int size;
    /** What follows in {@link #in} is not in {@link #out} yet. */
    private int copied;

    /** @param hash null where no rule hashes */
    Mask(Place document, KeyedHash hash) {
        this.document = document;
        this.hash = hash;
    }

    /** A document, as the rules leave it; the same array where they change nothing. */
    public byte[] ofDocument(byte[] bytes) {
        if (document.keepsAll()) return bytes;
        begin(bytes);
        rewrite(0, document, BsonElements.DOCUMENT);
        return end();
    }

    /** An update, as the rules leave it; null if nothing is left of it. */
    public byte[] ofUpdate(byte[] bytes) {
        if (document.keepsAll()) return bytes;
        begin(bytes);
        BsonElements parts = new BsonElements(bytes, 0);
        while (parts.next()) {
            int partAt = outAt(parts.nameStart() - 1);
            int length = parts.nameIs(SET)
                    ? rewrite(parts.valueStart(), document, parts.type())
                    : withoutDropped(parts.valueStart());
            if (length > EMPTY) continue;
            size = partAt;
            copied = parts.valueEnd();
        }
        byte[] left = end();
        return left.length == EMPTY ? null : left;
    }

    private void begin(byte[] bytes) {
        in = bytes;
        out = new byte[bytes.length + 64];
        size = 0;
        copied = 0;
    }

    private byte[] end() {
        if (copied == 0) return in;
        copyTo(in.length);
        INTS.set(out, 0, size);
        return Arrays.copyOf(out, size);
    }

    /** Where this byte of {@link #in} is in {@link #out}, or will be. */
    private int outAt(int position) {
        return size + position - copied;
    }

    /**
     * Returns the new length of the document or array that begins here. The names of an array's elements count for nothing: MongoDB does not look
     * at them either.
     */
    private int rewrite(int start, Place place, byte type) {
        int startAt = outAt(start);
        BsonElements elements = new BsonElements(in, start);
        while (elements.next()) {
            Place at =
                    type == BsonElements.ARRAY ? place : place.of(in, elements.nameStart(), elements.valueStart() - 1);
            if (at.keepsAll()) continue;
            if (at.action() == Action.DROP) leaveOut(elements);
            else if (elements.type() == BsonElements.DOCUMENT || elements.type() == BsonElements.ARRAY)
                rewrite(elements.valueStart(), at, elements.type());
            else replace(elements, at.action());
        }
        return patched(startAt, start + elements.length());
    }

    /** Of {@code $unset} and {@code $truncate}, whose values are no values of the document. */
    private int withoutDropped(int start) {
        int startAt = outAt(start);
        BsonElements paths = new BsonElements(in, start);
        while (paths.next())
            if (document.of(in, paths.nameStart(), paths.valueStart() - 1).action() == Action.DROP) leaveOut(paths);
        return patched(startAt, start + paths.length());
    }

    private int patched(int startAt, int end) {
        int length = outAt(end) - startAt;
        if (size > startAt) INTS.set(out, startAt, length); // else nothing of it has changed
        return length;
    }

    private void leaveOut(BsonElements element) {
        copyTo(element.nameStart() - 1);
        copied = element.valueEnd();
    }

    private void replace(BsonElements element, Action action) {
        if (action == Action.KEEP || element.type() == NULL || element.type() == UNDEFINED) return;
        byte[] value = action.isSet() ? action.constant() : hash.of(in, element);
        copyTo(element.nameStart() - 1);
        put(action.isSet() ? action.type() : BsonElements.STRING);
        copied = element.nameStart();
        copyTo(element.valueStart());
        room(value.length);
        System.arraycopy(value, 0, out, size, value.length);
        size += value.length;
        copied = element.valueEnd();
    }

    private void put(byte one) {
        room(1);
        out[size++] = one;
    }

    private void copyTo(int position) {
        int length = position - copied;
        room(length);
        System.arraycopy(in, copied, out, size, length);
        size += length;
        copied = position;
    }

    private void room(int more) {
        if (out.length - size < more) out = Arrays.copyOf(out, Math.max(2 * out.length, size + more));
    }
}
