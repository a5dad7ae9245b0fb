package io.towpath.support;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.bson.types.Decimal128;

/** BSON put together byte by byte, so that a test can say what no driver writes: NaN payloads, names twice, deprecated types. */
public final class Raw {
    private Raw() {}

    public static byte[] document(byte[]... elements) {
        byte[] body = join(elements);
        return join(int32(body.length + 5), body, new byte[1]);
    }

    public static byte[] element(int type, String name, byte[]... value) {
        return join(new byte[] {(byte) type}, name.getBytes(UTF_8), new byte[1], join(value));
    }

    public static byte[] doubleBits(String name, long bits) {
        return element(1, name, int64(bits));
    }

    public static byte[] doubleOf(String name, double value) {
        return doubleBits(name, Double.doubleToRawLongBits(value));
    }

    public static byte[] string(String name, String text) {
        return element(2, name, text(text));
    }

    public static byte[] embedded(String name, byte[]... elements) {
        return element(3, name, document(elements));
    }

    public static byte[] array(String name, byte[]... elements) {
        return element(4, name, document(elements));
    }

    public static byte[] symbol(String name, String text) {
        return element(14, name, text(text));
    }

    public static byte[] codeWithScope(String name, String code, byte[]... scope) {
        byte[] rest = join(text(code), document(scope));
        return element(15, name, int32(rest.length + 4), rest);
    }

    public static byte[] int32(String name, int value) {
        return element(16, name, int32(value));
    }

    public static byte[] timestamp(String name, int seconds, int ordinal) {
        return element(17, name, int32(ordinal), int32(seconds));
    }

    public static byte[] int64(String name, long value) {
        return element(18, name, int64(value));
    }

    public static byte[] decimal(String name, String value) {
        Decimal128 decimal = Decimal128.parse(value);
        return decimalBits(name, decimal.getLow(), decimal.getHigh());
    }

    public static byte[] decimalBits(String name, long low, long high) {
        return element(19, name, int64(low), int64(high));
    }

    /** One element of every BSON type, and of the unusual values of some. */
    public static byte[][] everyType() {
        return new byte[][] {
            doubleOf("double", 0.1),
            doubleBits("nan", 0xFFF8000000000001L),
            doubleBits("signalling", 0x7FF00000DEADBEEFL),
            doubleOf("negative zero", -0.0),
            string("text", "h\u00e9\u0000\ud83d\ude00"),
            element(2, "not utf-8", int32(3), new byte[] {(byte) 0xC3, 0x28, 0}),
            embedded("document", string("", "no name"), string("a.b", "dot"), string("$x", "dollar"), int32("x", 1)),
            array("array", int32("0", 1), array("1"), int64("2", 1)),
            element(5, "binary", int32(3), new byte[] {0, 1, 2, 3}),
            element(5, "old binary", int32(7), new byte[] {2}, int32(3), new byte[] {1, 2, 3}),
            element(5, "uuid", int32(16), new byte[] {4}, new byte[16]),
            element(6, "undefined"),
            element(7, "objectId", new byte[12]),
            element(8, "true", new byte[] {1}),
            element(9, "date", int64(-(1L << 62))),
            element(10, "null"),
            element(11, "regex", "a.*b\0ims\0".getBytes(UTF_8)),
            element(12, "dbPointer", text("a.b"), new byte[12]),
            element(13, "code", text("f()")),
            symbol("symbol", "s"),
            codeWithScope("scoped", "g()", int32("x", 1)),
            int32("int32", -5),
            timestamp("timestamp", 5, -7),
            timestamp("empty timestamp", 0, 0),
            int64("int64", 5),
            decimal("decimal", "1.2300E+5"),
            decimal("decimal -0", "-0E-20"),
            decimalBits("decimal nan", 5, 0xFC00000000000000L),
            element(0xFF, "min"),
            element(0x7F, "max"),
        };
    }

    public static byte[] join(byte[]... parts) {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        for (byte[] part : parts) out.writeBytes(part);
        return out.toByteArray();
    }

    private static byte[] text(String text) {
        byte[] utf8 = text.getBytes(UTF_8);
        return join(int32(utf8.length + 1), utf8, new byte[1]);
    }

    private static byte[] int32(int value) {
        return ByteBuffer.allocate(4)
                .order(ByteOrder.LITTLE_ENDIAN)
                .putInt(value)
                .array();
    }

    private static byte[] int64(long value) {
        return ByteBuffer.allocate(8)
                .order(ByteOrder.LITTLE_ENDIAN)
                .putLong(value)
                .array();
    }
}
