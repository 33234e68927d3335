//! The command `serve`: the trainer's sampler for other programs, over HTTP: completions with token ids, and chats.
//!
//! The endpoint is that of `llm-in-sandbox model serve`; only the engine behind it is another one.

use std::{net::SocketAddr, path::Path, sync::Arc};

use anyhow::Context;
use model::{Error, Formatted, Listener, Model, Request, Response, Sampling, Secret};
use model_server::{Images, ServeOptions, Served, TokenModel, TokenText};
use policy::{CudaGraphs, Engine, EngineSettings, PrefixSharing};
use rollout::{ChatCodec, PolicyModel, SamplingParams};
use startup::{Exit, Program, Signals, Threads, UsageError, note};
use tokio::net::TcpListener;
use training::{Machine, Precision};

use crate::{args::ServeArgs, environment};

/// Maximum number of tokens of a chat response if the client sets no limit.
const DEFAULT_MAX_TOKENS: u64 = 4096;

/// The default context length: longer ones take memory for every slot.
const DEFAULT_CONTEXT: usize = 8192;

/// Serves until a signal ends it.
pub(crate) fn run(program: Program, args: &ServeArgs) -> anyhow::Result<Exit> {
    let api_key = args.api_key_env.as_deref().map(environment::api_key).transpose()?;
    if api_key.is_none() && !args.host.is_loopback() {
        let text = format!(
            "--host {}: everyone who reaches this address could use the model; require a key with \
             --api-key-env",
            args.host
        );
        return Err(UsageError(text).into());
    }
    let path = environment::model(&args.model)?;
    let threads = program.runtime(Threads::AsManyAsProcessors)?;
    let at = SocketAddr::new(args.host, args.port);
    // Before the model is loaded, which takes long: an occupied port is reported at once.
    let listener = threads.block_on(TcpListener::bind(at)).map_err(|error| {
        UsageError(format!("cannot listen on {at}: {error}; choose another --port or --host"))
    })?;
    let signals = {
        let _guard = threads.enter();
        Signals::listen().context("cannot install signal handlers")?
    };
    let codec = Arc::new(ChatCodec::load(&path)?);
    let machine = Machine::new(args.device, Precision::Auto)?;
    let net = training::network(&path, machine, None, 0)?;
    let positions = usize::try_from(net.shape().positions).unwrap_or(usize::MAX);
    let settings = EngineSettings {
        slots: args.slots.into(),
        context: args.context.unwrap_or(DEFAULT_CONTEXT.min(positions)),
        cuda_graphs: CudaGraphs::Auto,
        memory_limit: None,
        prefix_sharing: PrefixSharing::On,
    };
    let engine = Arc::new(Engine::start(&net, settings).context("the sampler cannot start")?);
    let name = name(&args.model);
    let chat = PolicyChat { name, engine: Arc::clone(&engine), codec: Arc::clone(&codec) };
    let tokens = Some(TokenModel::new(engine, CodecText(codec)));
    let chat = Formatted::new(chat, args.tool_format);
    let served =
        Served { images: Images::Refused, tokens, ..Served::new(chat, DEFAULT_MAX_TOKENS) };
    let at = listener.local_addr()?;
    note(&format!(
        "serving {} on {} at http://{at}/v1; stop with Ctrl-C",
        args.model.display(),
        machine.describe()
    ));
    let serving = serve(listener, served, api_key, args.slots.into(), signals.clone());
    let ended = threads.block_on(serving);
    Program::shut_down(threads);
    ended?;
    Ok(signals.stopped())
}

/// The name clients use: that of the file or directory.
fn name(model: &Path) -> String {
    let is_file = model.extension().is_some_and(|end| end.eq_ignore_ascii_case("gguf"));
    let name = if is_file { model.file_stem() } else { model.file_name() };
    name.unwrap_or_default().to_string_lossy().into_owned()
}

async fn serve(
    listener: TcpListener,
    served: Served<Formatted<PolicyChat>>,
    api_key: Option<Secret>,
    slots: usize,
    mut signals: Signals,
) -> std::io::Result<()> {
    let options = ServeOptions { api_key, max_running: slots, ..ServeOptions::default() };
    let shutdown = async move {
        signals.cancelled().await;
    };
    model_server::serve(listener, vec![served], options, shutdown).await
}

/// The texts of a codec's tokens.
struct CodecText(Arc<ChatCodec>);

impl TokenText for CodecText {
    fn bytes(&self, token: u32) -> Vec<u8> {
        self.0.vocabulary().bytes_of(token).to_vec()
    }

    fn ends(&self) -> Vec<u32> {
        self.0.vocabulary().end_of_turn().to_vec()
    }
}

/// The sampler in chats: each request is a conversation of its own, whose beginning the sampler may have cached.
struct PolicyChat {
    name: String,
    engine: Arc<Engine>,
    codec: Arc<ChatCodec>,
}

impl Model for PolicyChat {
    fn name(&self) -> &str {
        &self.name
    }

    async fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Response, Error> {
        let params = params(request.sampling)?;
        let (engine, codec) = (Arc::clone(&self.engine), Arc::clone(&self.codec));
        // Its tool calls are read by the wrapper around this model.
        let format = model::ToolFormat::Native;
        let policy = PolicyModel::new(&self.name, engine, codec, params, format);
        policy.complete(request, listener).await
    }
}

/// The sampler's parameters; what it does not have is refused.
fn params(sampling: &Sampling) -> Result<SamplingParams, Error> {
    let refused = |what: &str| {
        let message = format!("{what} is not supported by this server");
        Err(Error::Refused { status: 400, message })
    };
    if sampling.min_p.is_some_and(|min_p| min_p > 0.0) {
        return refused("min_p");
    }
    if sampling.repetition_penalty.is_some_and(|penalty| penalty != 1.0) {
        return refused("repetition_penalty");
    }
    if !sampling.stop.is_empty() {
        return refused("stop");
    }
    let top_k = sampling.top_k.and_then(|top_k| usize::try_from(top_k).ok());
    Ok(SamplingParams {
        temperature: sampling.temperature.unwrap_or(1.0),
        top_p: sampling.top_p.unwrap_or(1.0),
        top_k: top_k.filter(|top_k| *top_k > 0),
        seed: sampling.seed.unwrap_or_else(random_seed),
    })
}

/// A seed that differs from request to request.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_has_the_name_of_its_file_or_directory() {
        for (path, expected) in [
            ("a/b-1.5b.Q4.gguf", "b-1.5b.Q4"),
            ("models/qwen2.5-1.5b", "qwen2.5-1.5b"),
            ("x/", "x"),
        ] {
            assert_eq!(name(Path::new(path)), expected);
        }
    }

    #[test]
    fn what_the_sampler_does_not_have_is_refused() {
        let with = |change: fn(&mut Sampling)| {
            let mut sampling = Sampling::default();
            change(&mut sampling);
            params(&sampling)
        };
        assert_eq!(with(|sampling| sampling.top_k = Some(0)).unwrap().top_k, None);
        assert!(with(|sampling| sampling.min_p = Some(0.1)).is_err());
        assert!(with(|sampling| sampling.repetition_penalty = Some(1.2)).is_err());
        assert!(with(|sampling| sampling.stop = vec!["x".into()]).is_err());
        assert_ne!(with(|_| {}).unwrap().seed, with(|_| {}).unwrap().seed);
    }
}
