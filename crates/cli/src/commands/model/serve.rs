//! `model serve`: a model in this process for other programs, over OpenAI's protocol.

use std::{io, net::SocketAddr};

use model::Formatted;
use model_server::{Images, ServeOptions, Served};
use startup::Signals;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::args::ServeArgs;
use crate::{
    args::model::Forcing,
    console::output,
    exit::{Exit, UsageError},
    model::{LocalSettings, ModelFile, token_model},
    settings::{Settings, environment},
};

/// Maximum number of tokens of a response if the client sets no limit.
const DEFAULT_MAX_TOKENS: u64 = 4096;

/// Serves until a signal ends it.
pub(crate) async fn run(
    args: ServeArgs,
    settings: &Settings,
    signals: &mut Signals,
) -> anyhow::Result<Exit> {
    let api_key = args.api_key_env.as_deref().map(environment::api_key).transpose()?;
    if api_key.is_none() && !args.host.is_loopback() {
        let text = format!(
            "--host {}: everyone who reaches this address could use the model; require a key with \
             --api-key-env",
            args.host
        );
        return Err(UsageError(text).into());
    }
    if args.force_calls == Forcing::Yes && !args.tool_format.can_be_forced() {
        let text = "--force-calls requires --tool-format hermes or fenced";
        return Err(UsageError(text.into()).into());
    }
    let at = SocketAddr::new(args.host, args.port);
    let caller_gone = CallerGone::watch(args.exit_with_stdin);
    // Before the model is loaded, which takes long: an occupied port is reported at once.
    let listener = TcpListener::bind(at).await.map_err(|error| {
        UsageError(format!("cannot listen on {at}: {error}; choose another --port or --host"))
    })?;
    // A model that was named is announced below, once it is served.
    let is_default = args.name.is_none();
    let file = match args.name {
        None => ModelFile::default_model()?,
        Some(name) => ModelFile::named(&name).unwrap_or(ModelFile::Listed(name)),
    };
    let plan = LocalSettings::of_command(file, args.local, args.concurrency, settings)?;
    if let Some(hint) = plan.hint(is_default, settings)?.filter(|_| is_default) {
        output::note(&hint);
    }
    let model = tokio::select! {
        model = plan.load(settings) => model?,
        exit = signals.cancelled() => return Ok(exit),
        () = caller_gone.wait() => return Ok(Exit::Done),
    };
    let tokens = Some(token_model(&model));
    let model = Formatted::new(model, args.tool_format);
    let model = match args.force_calls {
        Forcing::Yes => model.forced(),
        Forcing::No => model,
    };
    let served =
        Served { images: Images::Refused, tokens, ..Served::new(model, DEFAULT_MAX_TOKENS) };
    let at = listener.local_addr()?;
    output::note(&format!("serving {} at http://{at}/v1; stop with Ctrl-C", plan.title()));
    let options = ServeOptions {
        api_key,
        max_running: usize::try_from(args.concurrency.get()).unwrap_or(usize::MAX),
        ..ServeOptions::default()
    };
    let mut stop = signals.clone();
    let gone = caller_gone.clone();
    let shutdown = async move {
        tokio::select! {
            _ = stop.cancelled() => {}
            () = gone.wait() => {}
        }
    };
    model_server::serve(listener, vec![served], options, shutdown).await?;
    match caller_gone.is_gone() {
        true => Ok(Exit::Done),
        false => Ok(signals.cancelled().await),
    }
}

/// Whether the process that started this one is gone: its end of our standard input is closed.
#[derive(Clone)]
struct CallerGone(CancellationToken);

impl CallerGone {
    fn watch(wanted: bool) -> Self {
        let gone = CancellationToken::new();
        if wanted {
            let token = gone.clone();
            // Not a task: nothing may wait for a thread that reads standard input when the program ends.
            std::thread::spawn(move || {
                let _ = io::copy(&mut io::stdin(), &mut io::sink());
                token.cancel();
            });
        }
        Self(gone)
    }

    async fn wait(&self) {
        self.0.cancelled().await;
    }

    fn is_gone(&self) -> bool {
        self.0.is_cancelled()
    }
}
