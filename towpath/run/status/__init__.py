"""The status of a pipeline: gathered once (`gather`), decided in pure functions (`status`), written by `report`."""
