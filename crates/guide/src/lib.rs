//! The crates in reading order. This crate holds no code: it is the front page of `cargo xtask docs`.
//!
//! A language model works in a Linux sandbox: it runs commands, edits files and submits. The crates below
//! implement the sandbox, the loop, the models, benchmarks and reinforcement learning. Each can be used as a
//! library on its own; `examples/rust` in the repository holds short programs that do. `docs/architecture.md` follows
//! the commands `run`, `benchmark` and `train rl` file by file.
//!
//! # 1. The vocabulary
//!
//! Plain data and traits. All other crates speak in these terms.
//!
//! - [`lis_sandbox`](../lis_sandbox/index.html): the traits `Runtime` and `Sandbox`, resource limits, network
//!   policy, captured output.
//! - [`lis_trajectory`](../lis_trajectory/index.html): messages, tool calls, events, outcomes, usage, and their
//!   file formats.
//! - [`lis_model`](../lis_model/index.html): the trait `Model`; OpenAI and Anthropic; tool-call formats; retries,
//!   cache, prices.
//!
//! # 2. The agent
//!
//! - [`lis_agent`](../lis_agent/index.html): one episode: the loop, its tools, limits, prompts and compaction.
//!   Start with `run`.
//!
//! # 3. Sandboxes
//!
//! - [`lis_sandbox_native`](../lis_sandbox_native/index.html): namespaces, overlayfs, cgroups and seccomp; no
//!   daemon, no root.
//! - [`lis_sandbox_docker`](../lis_sandbox_docker/index.html): the same traits over the Docker Engine API.
//! - [`lis_runtimes`](../lis_runtimes/index.html): either of them, chosen when a program runs.
//! - [`lis_image`](../lis_image/index.html): OCI images: pull, import, build, commit.
//! - [`lis_supervisor`](../lis_supervisor/index.html): named sandboxes that outlast the command that created them.
//! - [`lis_episodes`](../lis_episodes/index.html): episodes of many clients, stored, resumed and forked.
//! - [`lis_mcp`](../lis_mcp/index.html): a sandbox as tools of the Model Context Protocol, over any transport.
//! - [`lis_server`](../lis_server/index.html): sandboxes over HTTP, for clients of E2B's protocol; episodes; environments, also for OpenEnv's.
//! - [`lis_sandbox_conformance`](../lis_sandbox_conformance/index.html): the tests that every runtime must pass.
//! - [`lis_sandbox_testkit`](../lis_sandbox_testkit/index.html): native sandboxes for the tests of other crates.
//!
//! # 4. Models
//!
//! - [`lis_model_local`](../lis_model_local/index.html): a GGUF file in this process, by llama.cpp.
//! - [`lis_model_server`](../lis_model_server/index.html): an OpenAI-compatible endpoint in front of any `Model`.
//! - [`lis_openai_wire`](../lis_openai_wire/index.html): requests, responses and errors in OpenAI's format.
//! - [`lis_chat_template`](../lis_chat_template/index.html): a conversation as the text a model was trained on.
//! - [`lis_catalogue`](../lis_catalogue/index.html): models by name: sizes, hashes, sources, downloads.
//! - [`lis_adapters`](../lis_adapters/index.html): the adapters that are part of the program, as bytes.
//! - [`lis_gguf`](../lis_gguf/index.html): GGUF files: metadata and tensors, read within bounds.
//! - [`lis_vocabulary`](../lis_vocabulary/index.html): text to token ids and back.
//! - [`lis_hub`](../lis_hub/index.html): files from the Hugging Face hub, with resumed downloads.
//!
//! # 5. Benchmarks
//!
//! - [`lis_grade`](../lis_grade/index.html): graders that score as the official ones of the benchmarks do.
//! - [`lis_problems`](../lis_problems/index.html): tasks: rows, prompts, which grader; task folders of users.
//! - [`lis_attempt`](../lis_attempt/index.html): one problem, one model, one graded answer.
//! - [`lis_environment`](../lis_environment/index.html): attempts whose model is the caller, for reinforcement learning elsewhere.
//! - [`lis_benchmark`](../lis_benchmark/index.html): many attempts: bounded, retried, graded, resumed.
//! - [`lis_results`](../lis_results/index.html): the directory of a benchmark run.
//! - [`lis_report`](../lis_report/index.html): statistics and analyses; Markdown, JSON and HTML.
//! - [`lis_viewer`](../lis_viewer/index.html): what the page in the browser shows: runs, attempts, episodes, exports.
//!
//! # 6. Training
//!
//! - [`lis_curriculum`](../lis_curriculum/index.html): tasks to train on, from documents and synthetic.
//! - [`lis_sampling`](../lis_sampling/index.html): the interface between the sampler and the episodes.
//! - [`lis_sampling_http`](../lis_sampling_http/index.html): the same interface over HTTP: vLLM, SGLang, our servers.
//! - [`lis_rollout`](../lis_rollout/index.html): episodes for training, with every sampled token and its reward.
//! - [`lis_policy`](../lis_policy/index.html): Llama, Qwen2 and Qwen3 on libtorch, and a batched sampler.
//! - [`lis_training`](../lis_training/index.html): the loops, the algorithms, the optimizer, checkpoints.
//! - [`lis_curves`](../lis_curves/index.html): figures of training runs.
//!
//! # 7. Small shared crates
//!
//! - [`lis_atomic_file`](../lis_atomic_file/index.html): files that are written completely or not at all.
//! - [`lis_error_text`](../lis_error_text/index.html): an error and its causes in one line.
//! - [`lis_http`](../lis_http/index.html): the HTTP client: TLS, timeouts, bounded bodies.
//! - [`lis_http_server`](../lis_http_server/index.html): an HTTP server's connections, access checks and bodies.
//! - [`lis_plot`](../lis_plot/index.html): SVG charts and self-contained HTML pages.
//! - [`lis_random_id`](../lis_random_id/index.html): ids and keys that cannot be guessed.
//! - [`lis_seeded`](../lis_seeded/index.html): reproducible pseudo-random numbers.
//!
//! # 8. Programs and tests
//!
//! - [`llm_in_sandbox`](../llm_in_sandbox/index.html): the command line; chooses model and runtime.
//! - [`llm_in_sandbox_train`](../llm_in_sandbox_train/index.html): the program that trains; alone links libtorch.
//! - [`lis_startup`](../lis_startup/index.html): what the programs share: signals, exit codes, error messages, logging.
//! - [`lis_perf`](../lis_perf/index.html): measures sandboxes, a server of them, the agent, benchmarks, models and graders.
//! - [`lis_testkit`](../lis_testkit/index.html): a scripted model and a mock server with faults on demand.
//! - [`xtask`](../xtask/index.html): prepares a machine, checks and tests; the architecture rules as tests.
