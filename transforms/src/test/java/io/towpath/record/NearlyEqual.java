package io.towpath.record;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.towpath.support.Raw;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.MathContext;
import java.util.Arrays;
import java.util.Random;
import org.bson.types.Decimal128;

/** Random {@code _id}s, many of which are equal, or differ by as little as their types can tell. */
final class NearlyEqual {
    private static final double[] LANDMARKS = {
        0,
        1,
        5,
        0.1,
        0.5,
        1e15,
        0x1p53,
        0x1p62,
        0x1p63,
        0x1p64,
        1e22,
        1e23,
        1e34,
        1e300,
        1e-300,
        Double.MIN_VALUE,
        Double.MIN_NORMAL,
        Double.MAX_VALUE
    };
    private static final BigDecimal MOST = new BigDecimal(BigInteger.TEN.pow(34).subtract(BigInteger.ONE));

    private final Random random;

    NearlyEqual(long seed) {
        random = new Random(seed);
    }

    /** A document {@code {_id: …}}. */
    byte[] document() {
        byte[] inside = random.nextInt(3) == 0 ? other("v") : number("v");
        return Raw.document(
                switch (random.nextInt(8)) {
                    case 0 -> Raw.embedded("_id", inside);
                    case 1 -> Raw.embedded("_id", Raw.array("a", inside));
                    case 2 -> Raw.embedded("_id", Raw.codeWithScope("c", "f()", inside));
                    case 3 -> Raw.codeWithScope("_id", "f()", inside);
                    case 4 -> Raw.embedded("_id", inside, number("w"));
                    default -> random.nextInt(3) == 0 ? other("_id") : number("_id");
                });
    }

    private byte[] number(String name) {
        switch (random.nextInt(24)) {
            case 0:
                return Raw.doubleBits(name, 0x7FF0000000000001L + random.nextInt(3));
            case 1:
                return Raw.doubleBits(name, 0xFFF8000000000000L + random.nextInt(3));
            case 2:
                return Raw.decimalBits(
                        name, random.nextInt(3), random.nextBoolean() ? 0x7C00000000000000L : 0xFE00000000000000L);
            case 3:
                return random.nextBoolean()
                        ? Raw.doubleOf(name, sign() * Double.POSITIVE_INFINITY)
                        : Raw.decimal(name, sign() > 0 ? "Infinity" : "-Infinity");
            case 4:
                return Raw.decimal(name, (sign() > 0 ? "" : "-") + "0E" + (random.nextInt(12000) - 6100));
            case 5: // more than 34 digits, in both codings: zero
                return Raw.decimalBits(name, -1, random.nextBoolean() ? 0x3041FFFFFFFFFFFFL : 0x6C10000000000000L);
            case 6:
                return Raw.decimal(name, (sign() > 0 ? "" : "-") + (random.nextBoolean() ? "1E+6144" : "9.99E-6170"));
            case 7:
                return Raw.int64(
                        name,
                        random.nextBoolean() ? Long.MAX_VALUE - random.nextInt(2) : Long.MIN_VALUE + random.nextInt(2));
            default:
                return near(name, value());
        }
    }

    private double value() {
        double landmark = LANDMARKS[random.nextInt(LANDMARKS.length)];
        double nearby =
                switch (random.nextInt(4)) {
                    case 0 -> Math.nextUp(landmark);
                    case 1 -> Math.nextDown(landmark);
                    case 2 -> landmark + random.nextInt(3) - 1;
                    default -> landmark;
                };
        return sign() * (Double.isFinite(nearby) ? nearby : Double.MAX_VALUE);
    }

    private byte[] near(String name, double value) {
        BigDecimal exact = new BigDecimal(value);
        BigInteger whole = exact.toBigInteger().add(BigInteger.valueOf(random.nextInt(3) - 1));
        switch (random.nextInt(5)) {
            case 0:
                return Raw.doubleOf(name, value);
            case 1:
                if (whole.bitLength() < Integer.SIZE) return Raw.int32(name, whole.intValue());
                break;
            case 2:
                if (whole.bitLength() < Long.SIZE) return Raw.int64(name, whole.longValue());
                break;
            case 3: // as people write it, or as many digits as a double has
                return decimal(
                        name, random.nextBoolean() ? BigDecimal.valueOf(value) : exact.round(new MathContext(17)));
            default:
                break;
        }
        BigDecimal rounded = exact.round(MathContext.DECIMAL128);
        return decimal(
                name,
                random.nextInt(3) > 0 ? rounded : rounded.add(rounded.ulp().multiply(BigDecimal.valueOf(sign()))));
    }

    /** With more or fewer zeros at its end, where it has room for them. */
    private byte[] decimal(String name, BigDecimal value) {
        BigDecimal scaled =
                random.nextBoolean() ? value.stripTrailingZeros() : value.setScale(value.scale() + random.nextInt(3));
        BigDecimal fits = scaled.round(MathContext.DECIMAL128);
        Decimal128 decimal = new Decimal128(
                fits.unscaledValue().abs().compareTo(MOST.unscaledValue()) > 0
                        ? value.round(MathContext.DECIMAL128)
                        : fits);
        return Raw.decimalBits(name, decimal.getLow(), decimal.getHigh());
    }

    private byte[] other(String name) {
        int few = random.nextInt(3);
        return switch (random.nextInt(13)) {
            case 0 -> Raw.string(name, "x".repeat(few));
            case 1 -> Raw.symbol(name, "x".repeat(few));
            case 2 -> Raw.element(13, name, utf8("x".repeat(few)));
            case 3 -> Raw.element(8, name, new byte[] {(byte) (few % 2)});
            case 4 -> Raw.timestamp(name, 0, few);
            case 5 -> Raw.element(9, name, Arrays.copyOf(new byte[] {(byte) few}, 8));
            case 6 -> Raw.element(10, name);
            case 7 -> Raw.element(7, name, new byte[12]);
            case 8 -> Raw.element(5, name, new byte[] {1, 0, 0, 0, (byte) (few + 3), 7});
            case 9 -> Raw.element(12, name, utf8("a"), Arrays.copyOf(new byte[] {(byte) few}, 12));
            case 10 -> Raw.element(few == 0 ? 0x7F : 0xFF, name);
            case 11 -> name.equals("_id") ? Raw.string(name, "\u00e9\u0000") : Raw.element(6, name);
            default -> Raw.embedded(name, number(few == 0 ? "" : "x"));
        };
    }

    private static byte[] utf8(String text) {
        byte[] bytes = text.getBytes(UTF_8);
        return Raw.join(new byte[] {(byte) (bytes.length + 1), 0, 0, 0}, bytes, new byte[1]);
    }

    private int sign() {
        return random.nextBoolean() ? 1 : -1;
    }
}
