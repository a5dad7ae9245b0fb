package io.towpath.fold;

import io.towpath.record.BsonBytes;
import io.towpath.record.BsonElements;
import io.towpath.record.Change;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.bson.io.BasicOutputBuffer;
import org.bson.io.BsonOutput;

/** An update as a list of the single places that it changes. */
public final class Steps {
    private static final byte[] EMPTY_STRING = {1, 0, 0, 0, 0};
    private static final Slice NOTHING = new Slice(BsonElements.STRING, EMPTY_STRING, 0, EMPTY_STRING.length);

    private final List<UpdateStep> steps;
    private Boolean areOperators; // needed twice for a single update

    Steps(List<UpdateStep> steps) {
        this.steps = steps;
    }

    public static Steps of(Change.Update update) {
        List<UpdateStep> steps = new ArrayList<>();
        for (Change.Truncation cut : update.truncations())
            steps.add(UpdateStep.truncate(UpdateStep.oneCharacterAByte(cut.path()), cut.newSize()));
        update.splices().forEach(splice -> steps.add(UpdateStep.splice(splice)));
        byte[] set = BsonBytes.of(update.set());
        BsonElements elements = new BsonElements(set, 0);
        while (elements.next()) {
            Slice value = new Slice(elements.type(), set, elements.valueStart(), elements.valueEnd());
            steps.add(UpdateStep.set(Container.name(set, elements), value));
        }
        for (String path : update.unset()) steps.add(UpdateStep.unset(UpdateStep.oneCharacterAByte(path)));
        return new Steps(steps);
    }

    List<UpdateStep> all() {
        return steps;
    }

    /**
     * Whether MongoDB's update operators, on the document that the source updated, produce the same bytes. The server adds new fields in
     * its own order, so those that are set in one place must ascend in it; a place with others below it existed before. No operator may
     * name a place within another one's.
     */
    public boolean areOperators() {
        if (areOperators == null)
            areOperators = areApart()
                    && steps.stream().allMatch(UpdateStep::isPlain)
                    && steps.stream().noneMatch(Steps::needsStage)
                    && descents() == 0;
        return areOperators;
    }

    /** Whether the step is a splice that no operator can do. */
    private static boolean needsStage(UpdateStep step) {
        return step.kind() == UpdateStep.Kind.SPLICE && Push.of(step.splice()).isEmpty();
    }

    /** The splices alone. */
    public Steps splices() {
        return new Steps(steps.stream()
                .filter(step -> step.kind() == UpdateStep.Kind.SPLICE)
                .toList());
    }

    /** Writes that apply the steps, which are apart: first all for which there are operators. */
    public List<Fold.Folded.Update> updates() {
        List<Fold.Folded.Update> updates = new ArrayList<>();
        Steps staged = new Steps(steps.stream().filter(Steps::needsStage).toList());
        Steps others =
                new Steps(steps.stream().filter(step -> !needsStage(step)).toList());
        if (!others.steps.isEmpty()) updates.add(new Fold.Folded.Update(others.operators(), false, others.lengths()));
        if (!staged.steps.isEmpty())
            updates.add(new Fold.Folded.Update(Stage.of(staged.steps), true, staged.lengths()));
        return updates;
    }

    private Map<String, Integer> lengths() {
        Map<String, Integer> lengths = new LinkedHashMap<>();
        for (UpdateStep step : steps)
            if (step.kind() == UpdateStep.Kind.SPLICE)
                lengths.put(step.splice().path(), step.splice().length());
        return lengths;
    }

    /** How many fields to set come before the preceding one of the same place in the server's order. */
    int descents() {
        Map<String, String> lastIn = new HashMap<>();
        int descents = 0;
        for (UpdateStep step : steps) {
            if (step.kind() != UpdateStep.Kind.SET) continue;
            String last = lastIn.put(step.parent(), step.name());
            if (last != null && !UpdateStep.ascends(last, step.name())) descents++;
        }
        return descents;
    }

    /** Whether no place occurs twice, or within another. */
    private boolean areApart() {
        Set<String> paths = new HashSet<>();
        for (UpdateStep step : steps) if (!paths.add(step.path())) return false;
        return steps.size() == 1 || steps.stream().noneMatch(step -> isWithinAny(step.path(), paths));
    }

    /** Whether the steps can be applied one by one: they are apart, except that a truncated array may be written into. */
    boolean areInOrder() {
        if (steps.size() == 1) return true;
        Set<String> written = new HashSet<>();
        Set<String> cut = new HashSet<>();
        for (UpdateStep step : steps) {
            if (!(step.kind() == UpdateStep.Kind.TRUNCATE ? cut : written).add(step.path())) return false;
        }
        return steps.stream()
                .noneMatch(step -> isWithinAny(step.path(), written)
                        || (step.kind() == UpdateStep.Kind.TRUNCATE
                                && (written.contains(step.path()) || isWithinAny(step.path(), cut))));
    }

    /** Whether an array is truncated and written into: where it is missing, truncation creates one, which accepts only indexes. */
    boolean writesBelow(UpdateStep cut) {
        return cut.kind() == UpdateStep.Kind.TRUNCATE
                && steps.stream().anyMatch(step -> step.path().startsWith(cut.path() + '.'));
    }

    private static boolean isWithinAny(String path, Set<String> places) {
        for (int dot = path.indexOf('.'); dot >= 0; dot = path.indexOf('.', dot + 1)) {
            if (places.contains(path.substring(0, dot))) return true;
        }
        return false;
    }

    /** MongoDB's update operators for the steps, as a document. */
    public byte[] operators() {
        BasicOutputBuffer out = new BasicOutputBuffer();
        Container.frame(out, () -> {
            operator(out, Change.SET, Set.of(UpdateStep.Kind.SET));
            operator(out, Change.UNSET, Set.of(UpdateStep.Kind.UNSET));
            operator(out, "$push", Set.of(UpdateStep.Kind.TRUNCATE, UpdateStep.Kind.SPLICE));
        });
        return out.toByteArray();
    }

    private void operator(BsonOutput out, String name, Set<UpdateStep.Kind> kinds) {
        List<UpdateStep> ofKind =
                steps.stream().filter(step -> kinds.contains(step.kind())).toList();
        if (ofKind.isEmpty()) return;
        Container.begin(out, BsonElements.DOCUMENT, name);
        Container.frame(out, () -> {
            for (UpdateStep step : ofKind) {
                switch (step.kind()) {
                    case SET -> Container.write(out, step.path(), step.value());
                    case UNSET -> Container.write(out, step.path(), NOTHING);
                    case TRUNCATE -> Push.cut(step.newSize()).writeTo(out, step.path());
                    case SPLICE -> Push.of(step.splice()).orElseThrow().writeTo(out, step.path());
                }
            }
        });
    }
}
