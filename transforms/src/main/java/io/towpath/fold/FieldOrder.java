package io.towpath.fold;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.Arrays;

/** The order in which the server's {@code $set} adds fields: numbers by value, all else by bytes. */
final class FieldOrder {
    private FieldOrder() {}

    /** Whether {@code next} certainly comes after {@code last}. That is not certain for numbers with leading zeros. */
    static boolean ascends(String last, String next) {
        if (isDigits(last) && isDigits(next)) {
            if (hasLeadingZero(last) || hasLeadingZero(next)) return false;
            return last.length() != next.length() ? last.length() < next.length() : last.compareTo(next) < 0;
        }
        return Arrays.compareUnsigned(last.getBytes(UTF_8), next.getBytes(UTF_8)) < 0;
    }

    private static boolean isDigits(String name) {
        return !name.isEmpty() && name.chars().allMatch(digit -> digit >= '0' && digit <= '9');
    }

    private static boolean hasLeadingZero(String number) {
        return number.length() > 1 && number.charAt(0) == '0';
    }
}
