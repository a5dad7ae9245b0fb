package io.towpath.fold;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;

import io.towpath.record.BsonBytes;
import io.towpath.record.Change;
import io.towpath.support.LogModel;
import java.util.List;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.Provide;

/** The folded writes, as a server applies them, leave the bytes that the changes leave one by one. */
class FoldTest {
    @Provide
    Arbitrary<List<Histories.Attempt>> attempts() {
        return Histories.attempts();
    }

    @Property
    void theSameBytes(@ForAll("attempts") List<Histories.Attempt> attempts, @ForAll boolean isKnown) {
        assertFolds(Histories.first(), Histories.values(attempts, isKnown));
    }

    /** Returns how many writes there are. */
    private static int assertFolds(byte[] before, List<byte[]> values) {
        LogModel expected = new LogModel();
        expected.apply(before);
        Fold fold = new Fold();
        for (byte[] value : values) {
            expected.apply(value);
            Change change = Change.decode(value);
            if (change instanceof Change.Update update) fold.update(Steps.of(update), value.length);
            else if (change instanceof Change.Document) fold.document(value);
            else fold.delete();
        }
        byte[] after = before;
        int next = 0;
        int writes = 0;
        for (Fold.Part part : fold.parts()) {
            if (next == 0) next = part.first();
            assertEquals(next, part.first(), "no change is left out");
            next += part.changes();
            for (Fold.Folded write : part.writes()) {
                writes++;
                after = written(after, write, values);
            }
        }
        if (!values.isEmpty()) assertEquals(values.size(), next);
        byte[] left = after;
        assertArrayEquals(expected.bytes(), after, () -> "%s instead of %s, by %s"
                .formatted(text(left), expected.document(), fold.parts()));
        return writes;
    }

    private static byte[] written(byte[] before, Fold.Folded write, List<byte[]> values) {
        if (write instanceof Fold.Folded.Document document) return document.bytes();
        if (write instanceof Fold.Folded.Delete) return null;
        if (write instanceof Fold.Folded.Alone alone) return alone(before, values.get(alone.change()));
        assertNotNull(before, "an update of no document");
        ServerModel server = new ServerModel(before);
        server.apply((Fold.Folded.Update) write);
        return BsonBytes.of(server.document());
    }

    /** With operators where they are said to do it. */
    private static byte[] alone(byte[] before, byte[] value) {
        LogModel expected = new LogModel();
        expected.apply(before);
        expected.apply(value);
        Steps steps = Steps.of((Change.Update) Change.decode(value));
        if (steps.areOperators()) {
            ServerModel server = new ServerModel(before);
            steps.updates().forEach(server::apply);
            assertEquals(expected.document(), server.document());
            assertArrayEquals(expected.bytes(), BsonBytes.of(server.document()));
        }
        return expected.bytes();
    }

    @Property
    void anUpdateIsWrittenWithOperatorsOnlyWhereTheyDoTheSame(@ForAll("attempts") List<Histories.Attempt> attempts) {
        byte[] document = Histories.first();
        for (byte[] value : Histories.values(attempts, false)) {
            boolean isUpdate = Change.decode(value) instanceof Change.Update;
            document = isUpdate ? alone(document, value) : value;
        }
    }

    private static String text(byte[] document) {
        return document == null ? "none" : ServerModel.decoded(document).toJson();
    }
}
