package io.towpath.sink.model;

import io.towpath.record.Change;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;
import org.bson.BsonValue;

/** What an update does to one place in a document, and to the places below. Applied in this order: value, unset or truncation; children. */
final class PathNode {
    private static final int MOST_ELEMENTS = 1_500_000; // the server pads an array no further

    final Map<String, PathNode> children = new LinkedHashMap<>();
    BsonValue value;
    boolean unset;
    OptionalInt newSize = OptionalInt.empty();

    /** The tree of an update's paths, which keep their order below every place. */
    static PathNode of(Change.Update update) {
        PathNode root = new PathNode();
        update.truncations().forEach(cut -> root.at(cut.path()).newSize = OptionalInt.of(cut.newSize()));
        update.set().forEach((path, value) -> root.at(path).become(value));
        // last, as a place with removals only has no part in the order of new fields
        update.unset().forEach(path -> root.at(path).become(null));
        return root;
    }

    /** The tree of paths of which nothing else is known. */
    static PathNode of(Collection<String> paths) {
        PathNode root = new PathNode();
        paths.forEach(root::at);
        return root;
    }

    private PathNode at(String path) {
        PathNode node = this;
        for (String name : path.split("\\.", -1)) node = node.children.computeIfAbsent(name, unused -> new PathNode());
        return node;
    }

    private void become(BsonValue newest) {
        value = newest;
        unset = newest == null;
        newSize = OptionalInt.empty();
    }

    boolean isLeaf() {
        return value != null && children.isEmpty();
    }

    /** Whether the place ends up missing. */
    boolean isRemoved() {
        return unset && onlyRemoves();
    }

    /** Whether nothing is written here or below, so that no container is needed. */
    boolean onlyRemoves() {
        return value == null && newSize.isEmpty() && !writesBelow() && (unset || !children.isEmpty());
    }

    boolean writesBelow() {
        return !children.values().stream().allMatch(PathNode::onlyRemoves);
    }

    /** The children that are not just removed, in their order. */
    List<Map.Entry<String, PathNode>> staying() {
        return children.entrySet().stream()
                .filter(child -> !child.getValue().isRemoved())
                .toList();
    }

    /** Whether the children may be elements of an array, which ignores removals below names that are no index. */
    boolean isIndexed() {
        return children.keySet().stream().anyMatch(PathNode::isIndex)
                && children.entrySet().stream()
                        .allMatch(child ->
                                isIndex(child.getKey()) || child.getValue().onlyRemoves());
    }

    static boolean isIndex(String name) {
        boolean digits =
                !name.isEmpty() && name.length() <= 7 && name.chars().allMatch(digit -> digit >= '0' && digit <= '9');
        return digits && (name.length() == 1 || name.charAt(0) != '0') && Integer.parseInt(name) < MOST_ELEMENTS;
    }
}
