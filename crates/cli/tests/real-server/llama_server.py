"""A real llama.cpp server for tests: `llama_server.py MODEL.gguf THREADS`.

Prints its address as one line, serves the OpenAI protocol, and ends when standard input closes, so that
it never outlives the test that started it.
"""

import sys

import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.hostnames = ["127.0.0.1"]
params.port = 0
params.n_ctx = 8192
params.n_parallel = 1
params.n_predict = 2048
params.cpuparams.n_threads = int(sys.argv[2])
params.cpuparams_batch.n_threads = int(sys.argv[2])
params.use_jinja = True
params.warmup = False
params.sampling.seed = 1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
