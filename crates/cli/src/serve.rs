//! `model serve`: a model in this process for other programs, over OpenAI's protocol.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    num::NonZeroU32,
};

use clap::Args;
use model::{Formatted, ToolFormat};
use model_server::{ServeOptions, Served, Sight};
use tokio::net::TcpListener;

use crate::{
    agent_args::{Forcing, LocalArgs},
    environment,
    exit::{Exit, Usage},
    interrupt::Interrupts,
    local::{LocalPlan, ModelFile},
    output,
    settings::Settings,
};

/// Tokens of a reply whose client sets no limit.
const USUAL_REPLY: u64 = 4096;

/// What to serve, and to whom.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llm-in-sandbox model serve qwen2.5-coder-1.5b
  llm-in-sandbox model serve ./file.gguf --adapter tuned.gguf --port 9000 --parallel 8
  llm-in-sandbox run \"...\" --model qwen2.5-coder-1.5b --base-url http://127.0.0.1:8080/v1")]
pub(crate) struct ServeArgs {
    /// The model, as `model list` names it, or a GGUF file [default: the default of `model list`]
    name: Option<String>,
    /// The address to listen at; any but a loopback one wants a key
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    /// The port; 0 takes a free one
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// The variable that holds the key clients must send
    #[arg(long, value_name = "VAR")]
    api_key_env: Option<String>,
    /// Replies written at the same time; each takes memory for a whole conversation
    #[arg(long, value_name = "N", default_value = "4")]
    parallel: NonZeroU32,
    /// How tools are offered to the model: auto, native, hermes, qwen3-coder, fenced
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    tool_format: ToolFormat,
    /// Whether a reply to a request with tools is forced to end with a well-formed call; in the formats
    /// hermes and fenced
    #[arg(long, value_name = "WHETHER", value_enum, default_value = "no")]
    force_calls: Forcing,
    #[command(flatten)]
    local: LocalArgs,
}

/// Serves until it is told to stop.
pub(crate) async fn run(
    args: ServeArgs,
    settings: &Settings,
    interrupts: &mut Interrupts,
) -> anyhow::Result<Exit> {
    let api_key = args.api_key_env.as_deref().map(environment::api_key).transpose()?;
    if api_key.is_none() && !args.host.is_loopback() {
        let text = format!(
            "--host {}: everybody who reaches this address could use the model; name the variable \
             that holds a key with --api-key-env",
            args.host
        );
        return Err(Usage(text).into());
    }
    if args.force_calls == Forcing::Yes && !args.tool_format.can_be_forced() {
        let text = "--force-calls: choose --tool-format hermes or fenced with it";
        return Err(Usage(text.into()).into());
    }
    let at = SocketAddr::new(args.host, args.port);
    // Taken before the model is loaded: that takes long, and a taken port is known at once.
    let listener = TcpListener::bind(at).await.map_err(|error| {
        Usage(format!("cannot listen at {at}: {error}; choose another --port or --host"))
    })?;
    let file = match args.name {
        None => {
            let (file, hint) = ModelFile::usual(settings)?;
            output::note(&hint);
            file
        }
        Some(name) => ModelFile::named(&name).unwrap_or(ModelFile::Listed(name)),
    };
    let plan = LocalPlan::new(file, args.local, args.parallel);
    let model = tokio::select! {
        model = plan.load(settings) => model?,
        exit = interrupts.cancelled() => return Ok(exit),
    };
    let model = Formatted::new(model, args.tool_format);
    let model = match args.force_calls {
        Forcing::Yes => model.forced(),
        Forcing::No => model,
    };
    let served = Served { sight: Sight::Blind, ..Served::new(model, USUAL_REPLY) };
    let at = listener.local_addr()?;
    output::note(&format!("{} is served at http://{at}/v1; Ctrl-C ends it", plan.file.name()));
    let options = ServeOptions {
        api_key,
        max_running: usize::try_from(args.parallel.get()).unwrap_or(usize::MAX),
        ..ServeOptions::default()
    };
    let mut ends = interrupts.clone();
    let shutdown = async move {
        ends.cancelled().await;
    };
    model_server::serve(listener, vec![served], options, shutdown).await?;
    Ok(interrupts.cancelled().await)
}
