//! `serve`: sandboxes over HTTP.

use std::net::{Ipv4Addr, SocketAddr};

use clap::Args;
use sandbox::{ImageRef, Network};
use server::ServeOptions;
use startup::Signals;
use tokio::net::TcpListener;

use crate::{
    args::{
        sandbox::{RuntimeKind, SandboxArgs},
        values::{self, Limit},
    },
    console::output,
    exit::{Exit, UsageError},
    settings::{Settings, environment, sandbox::SandboxSettings},
};

/// Options of `serve`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llm-in-sandbox serve
  E2B_API_URL=http://127.0.0.1:7777 E2B_SANDBOX_URL=http://127.0.0.1:7777 \\
      E2B_API_KEY=e2b_0000000000000000000000000000000000000000 python3 -c \\
    'from e2b import Sandbox; print(Sandbox.create().commands.run(\"id\").stdout)'
  llm-in-sandbox serve --addr 0.0.0.0:7777 --api-key-env SERVER_KEY --memory 2G")]
pub(crate) struct ServeArgs {
    /// Address and port to listen on; other than loopback requires --api-key-env. Port 0 chooses a free one
    #[arg(long, value_name = "ADDRESS", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 7777)))]
    addr: SocketAddr,
    /// Environment variable with the API key that clients must send
    #[arg(long, value_name = "VAR")]
    api_key_env: Option<String>,
    /// Sandboxes at once; further ones are refused
    #[arg(long, value_name = "N", default_value_t = 1000)]
    max_sandboxes: usize,
    /// Longest time a sandbox lives unless a client extends it, such as 1h
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = values::time)]
    max_lifetime: Limit<std::time::Duration>,
    #[command(flatten)]
    sandbox: SandboxArgs,
}

/// Serves until a signal ends it.
pub(crate) async fn run(
    args: ServeArgs,
    settings: &Settings,
    signals: &mut Signals,
) -> anyhow::Result<Exit> {
    let api_key = args.api_key_env.as_deref().map(environment::api_key).transpose()?;
    if api_key.is_none() && !args.addr.ip().is_loopback() {
        let text = format!(
            "--addr {}: everyone who reaches this address could run programs; require a key with \
             --api-key-env",
            args.addr
        );
        return Err(UsageError(text).into());
    }
    let sandbox = SandboxSettings::check(args.sandbox, "/home/user".into())?;
    if sandbox.runtime != RuntimeKind::Native {
        let text = "--runtime docker: only native sandboxes can be served; omit it";
        return Err(UsageError(text.into()).into());
    }
    if api_key.is_none() && sandbox.spec.network == Network::Full {
        let text = "--network full: every program in a sandbox could use this server; require a \
                    key with --api-key-env, or choose --network internet";
        return Err(UsageError(text.into()).into());
    }
    let listener = TcpListener::bind(args.addr).await.map_err(|error| {
        UsageError(format!("cannot listen on {}: {error}; choose another --addr", args.addr))
    })?;
    let at = listener.local_addr()?;
    let options = ServeOptions {
        api_key: api_key.map(|key| key.reveal().to_owned()),
        base: sandbox.spec.image.clone(),
        spec: sandbox.spec,
        max_sandboxes: args.max_sandboxes,
        max_lifetime: args.max_lifetime.0.unwrap_or(std::time::Duration::MAX),
        ..ServeOptions::default()
    };
    serve(listener, at, options, settings, signals).await
}

#[cfg(target_os = "linux")]
async fn serve(
    listener: TcpListener,
    at: SocketAddr,
    options: ServeOptions,
    settings: &Settings,
    signals: &mut Signals,
) -> anyhow::Result<Exit> {
    let runtime = std::sync::Arc::new(crate::runtime::native(settings).await?);
    let base = match &options.base {
        ImageRef::Host => "this machine's programs".to_owned(),
        image => format!("the image {image}"),
    };
    output::note(&format!(
        "serving sandboxes at http://{at}; the template `base` is {base}; stop with Ctrl-C"
    ));
    let mut stop = signals.clone();
    let shutdown = async move {
        stop.cancelled().await;
    };
    server::serve(listener, runtime, options, shutdown).await?;
    Ok(signals.cancelled().await)
}

#[cfg(not(target_os = "linux"))]
async fn serve(
    _: TcpListener,
    _: SocketAddr,
    _: ServeOptions,
    _: &Settings,
    _: &mut Signals,
) -> anyhow::Result<Exit> {
    let reason = "it needs the Linux kernel".into();
    let remedy = "run it on a Linux machine".into();
    Err(sandbox::Error::Unsupported { feature: sandbox::Feature::NativeRuntime, reason, remedy }
        .into())
}
