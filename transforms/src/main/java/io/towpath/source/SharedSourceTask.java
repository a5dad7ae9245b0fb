package io.towpath.source;

/**
 * One of several tasks. A plugin from before there were several does not have this class: a worker that is not upgraded yet fails the task,
 * and does not run a second stream in its place.
 */
public final class SharedSourceTask extends MongoSourceTask {}
