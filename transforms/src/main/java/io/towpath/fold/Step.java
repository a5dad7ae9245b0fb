package io.towpath.fold;

/**
 * What an update does to one place.
 *
 * @param path as in the update, one character per byte
 * @param names the path's parts
 * @param value what is set; null for the other kinds
 * @param newSize what an array is cut to; 0 for the other kinds
 */
record Step(Kind kind, String path, String[] names, Slice value, int newSize) {
    /** In the order in which the steps of one update are taken. */
    enum Kind {
        TRUNCATE,
        SET,
        UNSET
    }

    static Step set(String path, Slice value) {
        return new Step(Kind.SET, path, names(path), value, 0);
    }

    static Step unset(String path) {
        return new Step(Kind.UNSET, path, names(path), null, 0);
    }

    static Step truncate(String path, int newSize) {
        return new Step(Kind.TRUNCATE, path, names(path), null, newSize);
    }

    /** The last part of the path. */
    String name() {
        return names[names.length - 1];
    }

    /** The path of the place that this one is in; empty at the top. */
    String parent() {
        return path.substring(0, Math.max(0, path.lastIndexOf('.')));
    }

    /** Whether an operator accepts the path: it has no empty name, and none that begins with $. */
    boolean isPlain() {
        for (String name : names) if (name.isEmpty() || name.charAt(0) == '$') return false;
        return true;
    }

    private static String[] names(String path) {
        return path.split("\\.", -1);
    }
}
