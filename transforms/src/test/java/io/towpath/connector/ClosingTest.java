package io.towpath.connector;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class ClosingTest {
    private final List<String> closed = new ArrayList<>();

    private AutoCloseable part(String name, RuntimeException error) {
        return () -> {
            closed.add(name);
            if (error != null) throw error;
        };
    }

    @Test
    void allIsClosedAndTheFirstErrorIsKept() {
        RuntimeException first = new IllegalStateException("first");
        RuntimeException second = new IllegalArgumentException("second");
        Error third = new StackOverflowError();
        RuntimeException thrown = assertThrows(
                RuntimeException.class,
                () -> Closing.all(
                        part("a", null),
                        part("b", first),
                        null,
                        part("c", second),
                        () -> {
                            throw third;
                        },
                        part("d", null)));
        assertSame(first, thrown);
        assertArrayEquals(new Throwable[] {second, third}, thrown.getSuppressed());
        assertEquals(List.of("a", "b", "c", "d"), closed);
    }
}
