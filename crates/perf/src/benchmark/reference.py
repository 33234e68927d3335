"""Plays one-command episodes with the reference package, as its own benchmark runner does, and says how long.

Arguments: Docker image, address of the model's server, episodes, workers, directory for results.
The rows are made here; everything else is the package's own path.
"""

import json
import os
import sys
import time

image, url, episodes, workers, directory = sys.argv[1:6]
os.environ.setdefault("OPENAI_API_KEY", "none")
# Not to wait for a table of prices on the network.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

# Loaded before the clock starts, so that every worker has it.
import litellm
import llm_in_sandbox.agent
import llm_in_sandbox.docker_runtime
from llm_in_sandbox.benchmark import runner

rows = [
    {
        "id": f"perf-{number}",
        "domain": "biomed",
        "problem_statement": f"Measure the benchmark, number {number}. (A) yes (B) no",
        "ground_truth": "A",
        "input_files": {},
    }
    for number in range(int(episodes))
]
runner.load_dataset_from_config = lambda config: rows

settings = {
    "docker_image": image,
    "llm_name": "openai/perf",
    "llm_base_url": url,
    "max_steps": 10,
    "temperature": 1.0,
    "max_token_limit": 65536,
    "max_tokens_per_call": 4096,
    "max_response_len": 4096,
    "extra_body": None,
    "save_litellm_response": False,
}
began = time.monotonic()
results = runner.run_benchmark("biomed", settings, directory, num_workers=int(workers))
seconds = time.monotonic() - began
print()
print(json.dumps({"seconds": seconds, "score": results["mean_score"], "errors": results["num_errors"]}))
