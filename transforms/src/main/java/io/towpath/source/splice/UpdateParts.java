package io.towpath.source.splice;

import static java.nio.charset.StandardCharsets.US_ASCII;

import io.towpath.record.BsonElements;
import io.towpath.record.Change;
import java.util.Optional;

/**
 * An update in its bytes, and where its parts are in them.
 *
 * @param set the start of this part's document, as {@code unset} and {@code truncate}; 0 where there is no such part
 */
record UpdateParts(byte[] value, int set, int unset, int truncate) {
    private static final byte[] SET = Change.SET.getBytes(US_ASCII);
    private static final byte[] UNSET = Change.UNSET.getBytes(US_ASCII);
    private static final byte[] TRUNCATE = Change.TRUNCATE.getBytes(US_ASCII);

    /** Empty for a delete, a document, and whatever has other parts, such as splices. */
    static Optional<UpdateParts> of(byte[] value) {
        if (value == null) return Optional.empty();
        int set = 0;
        int unset = 0;
        int truncate = 0;
        BsonElements parts = new BsonElements(value, 0);
        while (parts.next()) {
            if (parts.type() != BsonElements.DOCUMENT) return Optional.empty();
            if (parts.nameIs(SET)) set = parts.valueStart();
            else if (parts.nameIs(UNSET)) unset = parts.valueStart();
            else if (parts.nameIs(TRUNCATE)) truncate = parts.valueStart();
            else return Optional.empty();
        }
        return Optional.of(new UpdateParts(value, set, unset, truncate));
    }

    boolean setsArrayOf(int leastBytes) {
        if (set == 0) return false;
        BsonElements fields = new BsonElements(value, set);
        while (fields.next()) if (isArrayOf(leastBytes, fields)) return true;
        return false;
    }

    static boolean isArrayOf(int leastBytes, BsonElements field) {
        return field.type() == BsonElements.ARRAY && field.valueEnd() - field.valueStart() >= leastBytes;
    }

    /** Whether the update says nothing else about what is at this path, around it or within it. */
    boolean isApart(BsonElements field) {
        return isApart(field, truncate) && isApart(field, set) && isApart(field, unset);
    }

    private boolean isApart(BsonElements field, int part) {
        if (part == 0) return true;
        BsonElements others = new BsonElements(value, part);
        while (others.next()) {
            if (others.nameStart() == field.nameStart()) continue;
            PathRelation relation = PathRelation.of(
                    value,
                    field.nameStart(),
                    field.valueStart() - 1,
                    value,
                    others.nameStart(),
                    others.valueStart() - 1);
            if (relation != PathRelation.APART) return false;
        }
        return true;
    }
}
