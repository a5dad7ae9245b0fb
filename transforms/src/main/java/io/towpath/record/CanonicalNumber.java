package io.towpath.record;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import org.bson.types.Decimal128;

/**
 * The one form of all numbers that are the same {@code _id} to MongoDB: an int64 if it is whole and fits, else a double if one is equal,
 * else a decimal without trailing zeros. Equal means exactly equal: to a query, the decimal 0.1000000000000000055511151231257827 equals the
 * double 0.1, but the index on {@code _id} accepts both.
 *
 * @param type the BSON type of the form
 * @param low the value's lowest 64 bits as BSON has them
 * @param high the upper 64 bits of a decimal, else 0
 */
public record CanonicalNumber(byte type, long low, long high) implements Comparable<CanonicalNumber> {
    private static final long NAN = 0x7FF8000000000000L;
    private static final double TWO_TO_63 = 0x1p63;
    private static final BigInteger DECIMAL_LIMIT = BigInteger.TEN.pow(34);
    private static final int DECIMAL_BIAS = 6176;
    private static final int INT64_DIGITS = 19;

    /** Of an element that is a number. */
    public static CanonicalNumber of(BsonElements element) {
        return switch (element.type()) {
            case BsonElements.INT32 -> ofLong(element.int32(0));
            case BsonElements.INT64 -> ofLong(element.int64(0));
            case BsonElements.DOUBLE -> ofDouble(Double.longBitsToDouble(element.int64(0)));
            default -> ofDecimal(element.int64(0), element.int64(8));
        };
    }

    private static CanonicalNumber ofLong(long value) {
        return new CanonicalNumber(BsonElements.INT64, value, 0);
    }

    private static CanonicalNumber ofDouble(double value) {
        if (Double.isNaN(value)) return new CanonicalNumber(BsonElements.DOUBLE, NAN, 0);
        if (value == Math.rint(value) && value >= -TWO_TO_63 && value < TWO_TO_63) return ofLong((long) value);
        return new CanonicalNumber(BsonElements.DOUBLE, Double.doubleToRawLongBits(value), 0);
    }

    /** From the two halves of a BSON decimal (IEEE 754-2008, binary integer coding). */
    private static CanonicalNumber ofDecimal(long low, long high) {
        int leading = (int) (high >>> 58) & 0x1F;
        if (leading == 0x1F) return ofDouble(Double.NaN);
        if (leading == 0x1E) return ofDouble(high < 0 ? Double.NEGATIVE_INFINITY : Double.POSITIVE_INFINITY);
        if (leading >= 0x18) return ofLong(0); // a coefficient of more than 34 digits counts as zero
        byte[] digits = ByteBuffer.allocate(16)
                .putLong(high & 0x1FFFFFFFFFFFFL)
                .putLong(low)
                .array();
        BigInteger coefficient = new BigInteger(1, digits);
        if (coefficient.signum() == 0 || coefficient.compareTo(DECIMAL_LIMIT) >= 0) return ofLong(0);
        int exponent = ((int) (high >>> 49) & 0x3FFF) - DECIMAL_BIAS;
        return ofDecimal(new BigDecimal(high < 0 ? coefficient.negate() : coefficient, -exponent).stripTrailingZeros());
    }

    private static CanonicalNumber ofDecimal(BigDecimal value) {
        boolean whole = value.scale() <= 0;
        if (whole && value.precision() - value.scale() <= INT64_DIGITS) {
            BigInteger integer = value.toBigIntegerExact();
            if (integer.bitLength() < Long.SIZE) return ofLong(integer.longValue());
        }
        double nearest = value.doubleValue();
        if (Double.isFinite(nearest) && new BigDecimal(nearest).compareTo(value) == 0) {
            return ofDouble(nearest);
        }
        Decimal128 decimal = new Decimal128(value);
        return new CanonicalNumber(BsonElements.DECIMAL128, decimal.getLow(), decimal.getHigh());
    }

    /** The exact order: NaN is the lowest, and no number is rounded. */
    @Override
    public int compareTo(CanonicalNumber other) {
        if (type == BsonElements.INT64 && other.type == BsonElements.INT64) return Long.compare(low, other.low);
        if (type == BsonElements.DOUBLE && other.type == BsonElements.DOUBLE || isEndless() || other.isEndless())
            return compare(nearest(), other.nearest());
        return exact().compareTo(other.exact());
    }

    private static int compare(double left, double right) {
        if (left < right) return -1;
        if (left > right) return 1;
        return Boolean.compare(Double.isNaN(right), Double.isNaN(left));
    }

    private boolean isEndless() {
        return type == BsonElements.DOUBLE && !Double.isFinite(nearest());
    }

    /** The value of a double; zero, in place of any finite number, for the other types. */
    private double nearest() {
        return type == BsonElements.DOUBLE ? Double.longBitsToDouble(low) : 0;
    }

    private BigDecimal exact() {
        return switch (type) {
            case BsonElements.INT64 -> BigDecimal.valueOf(low);
            case BsonElements.DOUBLE -> new BigDecimal(nearest());
            default -> Decimal128.fromIEEE754BIDEncoding(high, low).bigDecimalValue();
        };
    }
}
