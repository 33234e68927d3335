"""Sandboxes and episodes on a Ray cluster of two nodes, both on this machine.

    pip install llm-in-sandbox ray
    python ray_cluster.py
"""

import ray
from ray.cluster_utils import Cluster

from llm_in_sandbox.ray import RemoteSandbox, episode


def model(messages, tools):
    """Stands for a language model."""
    if messages[-1]["role"] == "user":
        command = "expr $(cat input/n) \\* $(cat input/n) > output/answer.txt"
        call = {"name": "execute_bash", "arguments": {"command": command}}
    else:
        call = {"name": "submit", "arguments": {}}
    return {"content": "", "tool_calls": [{"function": call}]}


def start():
    """Two nodes with room for four sandboxes each; only the first has a driver."""
    cluster = Cluster()
    options = {"num_cpus": 2, "resources": {"sandbox": 4}, "object_store_memory": 80 << 20}
    cluster.add_node(**options, include_dashboard=False)
    cluster.add_node(**options)
    ray.init(address=cluster.address, log_to_driver=False)
    cluster.wait_for_nodes()
    return cluster


def main():
    sandboxes = [RemoteSandbox.remote(memory="256M") for _ in range(4)]
    outputs = ray.get([sandbox.run.remote(f"echo {n}") for n, sandbox in enumerate(sandboxes)])
    places = ray.get([sandbox.where.remote() for sandbox in sandboxes])
    tasks = [episode.remote("The square of n?", model, {"n": str(n)}) for n in range(4)]
    trajectories = ray.get(tasks)
    return [o.stdout for o in outputs], places, [t.answer for t in trajectories]


if __name__ == "__main__":
    nodes = start()
    outputs, places, answers = main()
    print(outputs, {node for node, _ in places}, answers)
    ray.shutdown()
    nodes.shutdown()
