"""Run a workload by hand: `python -m tests.support.workload --uri URI --seed 7 --namespace a.b --operations 5000`."""

from __future__ import annotations

import argparse
from typing import Any

from pymongo import MongoClient

from tests.support import raw
from tests.support.workload import Workload


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.workload", description=__doc__)
    parser.add_argument("--uri", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--namespace", action="append", metavar="DB.COLLECTION", help="may be given several times")
    parser.add_argument("--operations", type=int, default=5000)
    parser.add_argument("--documents", type=int, default=300, help="per collection")
    parser.add_argument("--moves", action="store_true", help="also pipelines that move fields")
    parser.add_argument("--odd-names", action="store_true", help="also names with dots, dollars or nothing")
    parser.add_argument("--versions", action="store_true", help="also a counter in every document")
    chosen = parser.parse_args()
    with MongoClient[dict[str, Any]](chosen.uri) as client:
        collections = [raw.collection(client, name) for name in chosen.namespace or ["workload.documents"]]
        workload = Workload(
            chosen.seed,
            collections,
            documents=chosen.documents,
            moves=chosen.moves,
            odd_names=chosen.odd_names,
            versions=chosen.versions,
        )
        workload.fill()
        workload.run(chosen.operations)
    print(workload.statistics)


if __name__ == "__main__":
    main()
