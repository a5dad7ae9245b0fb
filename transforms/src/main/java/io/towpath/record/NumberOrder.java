package io.towpath.record;

import java.math.BigDecimal;
import org.bson.types.Decimal128;

/** The exact order of numbers of all four BSON types: NaN is the lowest, and no number is rounded. */
final class NumberOrder {
    private static final double TWO_TO_63 = 0x1p63;

    private NumberOrder() {}

    static int compare(BsonElements left, BsonElements right) {
        if (left.type() == BsonElements.DECIMAL128 || right.type() == BsonElements.DECIMAL128) {
            return compare(canonical(left), canonical(right));
        }
        boolean leftIsDouble = left.type() == BsonElements.DOUBLE;
        if (right.type() == BsonElements.DOUBLE) {
            double value = Double.longBitsToDouble(right.int64(0));
            return leftIsDouble
                    ? compare(Double.longBitsToDouble(left.int64(0)), value)
                    : -compare(value, integer(left));
        }
        return leftIsDouble
                ? compare(Double.longBitsToDouble(left.int64(0)), integer(right))
                : Long.compare(integer(left), integer(right));
    }

    private static long integer(BsonElements element) {
        return element.type() == BsonElements.INT32 ? element.int32(0) : element.int64(0);
    }

    private static int compare(double left, double right) {
        if (left < right) return -1;
        if (left > right) return 1;
        return Boolean.compare(Double.isNaN(right), Double.isNaN(left));
    }

    private static int compare(double left, long right) {
        if (Double.isNaN(left) || left < -TWO_TO_63) return -1;
        if (left >= TWO_TO_63) return 1;
        long whole = (long) left;
        return whole != right ? Long.compare(whole, right) : compare(left, (double) whole);
    }

    private static CanonicalNumber canonical(BsonElements element) {
        return switch (element.type()) {
            case BsonElements.DECIMAL128 -> CanonicalNumber.ofDecimal(element.int64(0), element.int64(8));
            case BsonElements.DOUBLE -> CanonicalNumber.ofDouble(Double.longBitsToDouble(element.int64(0)));
            default -> CanonicalNumber.ofLong(integer(element));
        };
    }

    private static int compare(CanonicalNumber left, CanonicalNumber right) {
        double l = endless(left);
        double r = endless(right);
        return l == 0 && r == 0 ? exact(left).compareTo(exact(right)) : compare(l, r);
    }

    /** The number if it is NaN or infinite; 0 if it is finite. */
    private static double endless(CanonicalNumber number) {
        if (number.type() != BsonElements.DOUBLE) return 0;
        double value = Double.longBitsToDouble(number.low());
        return Double.isFinite(value) ? 0 : value;
    }

    private static BigDecimal exact(CanonicalNumber number) {
        return switch (number.type()) {
            case BsonElements.INT64 -> BigDecimal.valueOf(number.low());
            case BsonElements.DOUBLE -> new BigDecimal(Double.longBitsToDouble(number.low()));
            default -> Decimal128.fromIEEE754BIDEncoding(number.high(), number.low())
                    .bigDecimalValue();
        };
    }
}
