//! `serve`: sandboxes over HTTP, and episodes of a model in them.

mod access;
mod chat;
mod environments;
mod episodes;
mod page;
mod tokens;

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use clap::Args;
use sandbox::{HostPattern, ImageRef, Network};
use server::{DataDirectory, McpOptions, OperationOptions, ServeOptions};
use startup::{LogFormat, Signals};
use tokio::net::TcpListener;

use self::episodes::{EpisodeArgs, NO_MODEL};
use crate::{
    args::{
        sandbox::{RuntimeKind, SandboxArgs},
        values::{self, Limit},
    },
    console::output,
    exit::{Exit, UsageError},
    settings::{Settings, sandbox::SandboxSettings},
};
use access::{Access, AccessArgs};

/// Options of `serve`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llm-in-sandbox serve
  E2B_API_URL=http://127.0.0.1:7777 E2B_SANDBOX_URL=http://127.0.0.1:7777 \\
      E2B_API_KEY=e2b_0000000000000000000000000000000000000000 python3 -c \\
    'from e2b import Sandbox; print(Sandbox.create().commands.run(\"id\").stdout)'
  llm-in-sandbox serve --addr 0.0.0.0:7777 --api-key-env SERVER_KEY --memory 2G
  llm-in-sandbox serve --addr 0.0.0.0:7777 --tokens tokens.toml \\
    --tls-cert cert.pem --tls-key key.pem
  llm-in-sandbox serve --model Qwen/Qwen3-32B \\
      --base-url http://localhost:8000/v1 --data-dir kept/
  llm-in-sandbox serve --task examples/tasks/receipts --lease 5m")]
pub(crate) struct ServeArgs {
    /// Address and port to listen on; other than loopback requires a key. Port 0 chooses a free one
    #[arg(long, value_name = "ADDRESS", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 7777)))]
    addr: SocketAddr,
    #[command(flatten)]
    access: AccessArgs,
    /// Directory for what the server keeps, such as its audit log [default: server in the data directory]
    #[arg(long, alias = "data", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Sandboxes at once; further ones are refused
    #[arg(long, value_name = "N", default_value_t = 1000)]
    max_sandboxes: usize,
    /// Longest time a sandbox lives unless a client extends it, such as 1h
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = values::time)]
    max_lifetime: Limit<std::time::Duration>,
    /// Longest time a sandbox stays paused, which keeps its memory; it is removed afterwards
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = values::time)]
    max_paused: Limit<std::time::Duration>,
    /// How long a session of the Model Context Protocol (/mcp) lasts without a connection of its client, such as 1h
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = values::finite_time)]
    mcp_idle: std::time::Duration,
    /// Format of the log that -v turns on: lines of text, or JSON objects
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    log_format: LogFormat,
    #[command(flatten)]
    episodes: EpisodeArgs,
    #[command(flatten)]
    environments: environments::EnvironmentArgs,
    #[command(flatten)]
    sandbox: SandboxArgs,
}

impl ServeArgs {
    /// How the log is written.
    pub(crate) fn log_format(&self) -> LogFormat {
        self.log_format
    }
}

/// Serves until a signal ends it.
pub(crate) async fn run(
    args: ServeArgs,
    settings: &Settings,
    signals: &mut Signals,
) -> anyhow::Result<Exit> {
    let access = Access::read(args.access)?;
    access.check_address(args.addr)?;
    let sandbox = SandboxSettings::check(args.sandbox, "/home/user".into())?;
    if sandbox.runtime != RuntimeKind::Native {
        let text = "--runtime docker: only native sandboxes can be served; omit it";
        return Err(UsageError(text.into()).into());
    }
    if !access.needs_key() && sandbox.spec.network == Network::Full {
        let text = "--network full: every program in a sandbox could use this server; require a \
                    key with --api-key-env or --tokens, or choose --network internet";
        return Err(UsageError(text.into()).into());
    }
    let environments = args.environments.load(&sandbox.spec, args.max_sandboxes, settings).await?;
    let listener = TcpListener::bind(args.addr).await.map_err(|error| {
        UsageError(format!("cannot listen on {}: {error}; choose another --addr", args.addr))
    })?;
    let at = listener.local_addr()?;
    refuse_own_address(&sandbox.spec.network, at)?;
    let data = data_directory(args.data_dir.clone(), settings)?;
    let keeps_episodes = args.data_dir.is_some();
    let spec = sandbox.spec.clone();
    let opened = episodes::open(args.episodes, data.path(), keeps_episodes, spec, settings).await?;
    let (episodes, chat) = opened.unzip();
    let page = episodes.as_ref().map(page::routes);
    let options = ServeOptions {
        episodes,
        chat,
        page,
        no_model: NO_MODEL.into(),
        tokens: access.tokens.clone(),
        tls: access.tls.clone(),
        operation: operation(data, settings)?,
        base: sandbox.spec.image.clone(),
        spec: sandbox.spec,
        environments,
        max_sandboxes: args.max_sandboxes,
        max_lifetime: args.max_lifetime.0.unwrap_or(std::time::Duration::MAX),
        max_paused: args.max_paused.0.unwrap_or(std::time::Duration::MAX),
        mcp: McpOptions { idle_timeout: args.mcp_idle, ..McpOptions::default() },
        ..ServeOptions::default()
    };
    tokio::select! {
        ended = serve(listener, at, options, settings, signals) => ended,
        () = access.follow() => Ok(Exit::Done),
    }
}

/// Refuses to let sandboxes use the server that makes them.
fn refuse_own_address(network: &Network, at: SocketAddr) -> Result<(), UsageError> {
    let Network::Allow(hosts) = network else { return Ok(()) };
    let own = [at.ip().to_string(), "localhost".into(), "127.0.0.1".into(), "::1".into()];
    let is_own = |pattern: &&HostPattern| {
        let address = pattern.to_string().parse::<SocketAddr>().map(|address| address.ip());
        // A socket can be bound to the addresses of this machine only.
        let address = address.ok().filter(|ip| std::net::UdpSocket::bind((*ip, 0)).is_ok());
        let address = address.map(|address| address.to_string());
        own.iter().chain(&address).any(|own| pattern.matches(own, at.port()))
    };
    match hosts.iter().find(is_own) {
        None => Ok(()),
        Some(pattern) => Err(UsageError(format!(
            "--network allow={pattern}: programs in a sandbox could use this server at {at}; leave it out, or choose \
             another port with --addr"
        ))),
    }
}

/// Locks the directory in which the server keeps its files.
fn data_directory(named: Option<PathBuf>, settings: &Settings) -> anyhow::Result<DataDirectory> {
    let path = match named {
        Some(path) => path,
        None => settings.writable_home()?.join("server"),
    };
    DataDirectory::open(path.clone()).map_err(|error| {
        let path = path.display();
        let text = match error {
            ::episodes::Error::InUse(_) => format!(
                "another server is using {path}; stop it, or choose another directory with --data-dir"
            ),
            error => format!("{}; choose another directory with --data-dir", error.chain()),
        };
        UsageError(text).into()
    })
}

fn operation(data: DataDirectory, settings: &Settings) -> anyhow::Result<OperationOptions> {
    #[cfg(target_os = "linux")]
    let sandbox_files = Some(settings.state()?.path);
    #[cfg(not(target_os = "linux"))]
    let sandbox_files = None;
    Ok(OperationOptions {
        audit: Some(data.path().to_owned()),
        data: Some(data),
        sandbox_files,
        ..OperationOptions::default()
    })
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
    let served = options.episodes.as_ref().and_then(|episodes| episodes.models.first());
    let model = served.map(|model| format!(" and episodes of {}", model.name)).unwrap_or_default();
    let scheme = if options.tls.is_some() { "https" } else { "http" };
    output::note(&format!(
        "serving sandboxes{model} at {scheme}://{at}; the template `base` is {base}; stop with Ctrl-C"
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sandboxes_cannot_be_allowed_to_use_the_server() {
        let at: SocketAddr = "10.1.2.3:7777".parse().unwrap();
        let check = |hosts: &[&str]| {
            let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
            refuse_own_address(&Network::Allow(hosts), at)
        };
        for host in ["localhost:7777", "127.0.0.1:7777", "127.0.0.2:7777", "10.1.2.3:7777"] {
            let error = check(&["example.org", host]).unwrap_err().to_string();
            assert!(error.contains("--network allow"), "{error}");
        }
        check(&["example.org", "127.0.0.1:7778"]).unwrap();
        refuse_own_address(&Network::Internet, at).unwrap();
    }
}
