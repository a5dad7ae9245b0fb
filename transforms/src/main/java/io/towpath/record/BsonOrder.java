package io.towpath.record;

import java.util.Arrays;

/**
 * The order of {@code _id}s that MongoDB's index on {@code _id} keeps (under the simple collation): first by type, then by value.
 * Two are equal exactly when their {@link CanonicalKey}s are. MinKey and MaxKey come before and after all else, and so bound ranges.
 */
public final class BsonOrder {
    private BsonOrder() {}

    /**
     * Compares the {@code _id}s of two BSON documents, whatever else is in them. Throws {@link ContractException} when one has none or is
     * damaged.
     */
    public static int compare(byte[] left, byte[] right) {
        return compareElements(left, id(left), right, id(right), false);
    }

    private static BsonElements id(byte[] document) {
        return BsonElements.atId(document)
                .orElseThrow(
                        () -> new ContractException("a document without an _id has no place in the order of _ids"));
    }

    private static int compareElements(byte[] l, BsonElements left, byte[] r, BsonElements right, boolean names) {
        int byType = rank(left.type()) - rank(right.type());
        if (byType != 0) return byType;
        if (names) {
            // with their zeros, so that a name comes before a longer one that begins with it
            int byName = Arrays.compareUnsigned(
                    l, left.nameStart(), left.valueStart(), r, right.nameStart(), right.valueStart());
            if (byName != 0) return byName;
        }
        return compareValues(l, left, r, right);
    }

    /** Where values of a BSON type stand among those of others; types of one rank compare by value. */
    private static int rank(byte type) {
        return switch (type) {
            case (byte) 0xFF -> 0; // MinKey
            case 0x06 -> 1; // undefined
            case 0x0A -> 2; // null
            case BsonElements.DOUBLE, BsonElements.INT32, BsonElements.INT64, BsonElements.DECIMAL128 -> 3;
            case BsonElements.STRING, BsonElements.SYMBOL -> 4;
            case BsonElements.DOCUMENT -> 5;
            case BsonElements.ARRAY -> 6;
            case BsonElements.BINARY -> 7;
            case 0x07 -> 8; // ObjectId
            case BsonElements.BOOLEAN -> 9;
            case BsonElements.DATE -> 10;
            case BsonElements.TIMESTAMP -> 11;
            case 0x0B -> 12; // regular expression
            case BsonElements.DB_POINTER -> 13;
            case BsonElements.CODE -> 14;
            case BsonElements.CODE_WITH_SCOPE -> 15;
            default -> 16; // MaxKey: the walker lets no other type through
        };
    }

    private static int compareValues(byte[] l, BsonElements left, byte[] r, BsonElements right) {
        return switch (left.type()) {
            case BsonElements.DOUBLE, BsonElements.INT32, BsonElements.INT64, BsonElements.DECIMAL128 -> CanonicalNumber
                    .of(left)
                    .compareTo(CanonicalNumber.of(right));
            case BsonElements.DATE -> Long.compare(left.int64(0), right.int64(0));
            case BsonElements.TIMESTAMP -> Long.compareUnsigned(left.int64(0), right.int64(0));
            case BsonElements.DOCUMENT -> compareInside(l, left.valueStart(), r, right.valueStart(), true);
            case BsonElements.ARRAY -> compareInside(l, left.valueStart(), r, right.valueStart(), false);
            case BsonElements.CODE_WITH_SCOPE -> compareScoped(l, left, r, right);
            case BsonElements.BINARY, BsonElements.DB_POINTER -> {
                int byLength = Integer.compare(left.int32(0), right.int32(0));
                yield byLength != 0 ? byLength : compareBytes(l, left, r, right, 4);
            }
                // the zero at a text's end compares as the end does: lower than any byte, and a shorter text comes
                // first
            case BsonElements.STRING, BsonElements.SYMBOL, BsonElements.CODE -> compareBytes(l, left, r, right, 4);
            default -> compareBytes(l, left, r, right, 0);
        };
    }

    private static int compareBytes(byte[] l, BsonElements left, byte[] r, BsonElements right, int from) {
        return Arrays.compareUnsigned(
                l, left.valueStart() + from, left.valueEnd(), r, right.valueStart() + from, right.valueEnd());
    }

    /** Element by element, the shorter first; the names inside an array do not count. */
    private static int compareInside(byte[] l, int leftAt, byte[] r, int rightAt, boolean names) {
        BsonElements left = new BsonElements(l, leftAt);
        BsonElements right = new BsonElements(r, rightAt);
        while (left.next()) {
            if (!right.next()) return 1;
            int order = compareElements(l, left, r, right, names);
            if (order != 0) return order;
        }
        return right.next() ? -1 : 0;
    }

    private static int compareScoped(byte[] l, BsonElements left, byte[] r, BsonElements right) {
        int leftScope = scope(left);
        int rightScope = scope(right);
        int byCode = Arrays.compareUnsigned(l, left.valueStart() + 8, leftScope, r, right.valueStart() + 8, rightScope);
        return byCode != 0 ? byCode : compareInside(l, leftScope, r, rightScope, true);
    }

    private static int scope(BsonElements code) {
        int length = code.valueEnd() - code.valueStart() - 8;
        if (length < 0 || code.int32(4) < 0 || code.int32(4) > length) {
            throw BsonElements.damaged(code.valueStart());
        }
        return code.valueStart() + 8 + code.int32(4);
    }
}
