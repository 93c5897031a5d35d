"""What Ray makes of shards and of a text, as JSON in a file, as Ray prints: python -m tests.engines.on_ray FOLDER MARK OUT"""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import ray

from tests.engines.works import (
    asked,
    die,
    digest,
    fail,
    gpus_of_worker,
    kill_one,
    killed_once,
    layers_digest,
    layers_of,
    number_of,
    pair_sum,
    tasks,
)
from uncone.engines.choose import engine_of
from uncone.errors import UnconeError


def on_two_nodes(folder: Path) -> dict[str, Any]:
    """One of which goes in the middle of the sums, and another in the middle of the text."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes, found = list[Any](), dict[str, Any]()

    def lose(*_: object) -> None:
        if nodes:
            cluster.remove_node(nodes.pop(), allow_graceful=False)

    def with_another() -> Any:
        nodes.append(cluster.add_node(num_cpus=1))
        cluster.wait_for_nodes()
        return engine_of(2, "ray", cluster.address)

    engine = with_another()
    found["node lost"] = engine.fold(tasks(folder, partial(number_of, 0.2)), pair_sum, lose)
    assert not nodes
    engine.close()
    engine = with_another()
    found["text, node lost"] = layers_digest(layers_of(folder / "model", folder / "text.txt", engine, progress=lose))
    assert not nodes
    engine.close()
    cluster.shutdown()
    return found


def main(folder: Path, mark: str, out: Path) -> None:
    ray.init(
        address="local", num_cpus=2, num_gpus=2, include_dashboard=False, configure_logging=False, log_to_driver=False
    )
    engine, found = engine_of(2, "ray", None), dict[str, Any]()
    assert engine is not None
    found["all units"] = digest(asked(folder, engine="ray"))
    found["one unit"] = digest(asked(folder, engine="ray", workers=1))
    found["killed once"] = engine.fold(tasks(folder, partial(killed_once, mark, 4)), pair_sum, lambda _: None)
    for name, work in {"failed": fail, "killed always": die}.items():
        try:
            engine.fold(tasks(folder, partial(work, 5)), pair_sum, lambda _: None)
        except UnconeError as error:
            found[name] = str(error)
    found["gpus"] = list(engine.each(gpus_of_worker, tasks(folder, fail)[:4], on_gpu=True))
    model, text, killed = folder / "model", folder / "text.txt", list[int]()

    def kill_first(step: str, done: int, of: int) -> None:
        if not killed:
            kill_one("ray::_Worker")
            killed.append(done)

    found["text, one killed"] = layers_digest(layers_of(model, text, engine, progress=kill_first))
    engine.close()
    ray.shutdown()
    found |= on_two_nodes(folder)
    out.write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
