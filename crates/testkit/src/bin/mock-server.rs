//! The mock server as a program, for measurements: prints its address, then holds the same conversation with every
//! client until its standard input ends.

use std::{io, io::Write, time::Duration};

use anyhow::{Context, bail};
use lis_testkit::{Conversation, Keep, MockServer};

const USAGE: &str =
    "usage: mock-server [--turns N] [--command TEXT] [--delay-ms N] [--chunks N] [--tokens N]";

fn main() -> anyhow::Result<()> {
    let conversation = conversation(std::env::args().skip(1))?;
    let server = MockServer::answering_and(Keep::Counts, move |asked| conversation.answer(asked))
        .context("cannot start the server")?;
    let mut out = io::stdout().lock();
    writeln!(out, "{}", server.base_url())?;
    out.flush()?;
    drop(out);
    io::copy(&mut io::stdin().lock(), &mut io::sink())?;
    Ok(())
}

fn conversation(mut words: impl Iterator<Item = String>) -> anyhow::Result<Conversation> {
    let mut conversation = Conversation::default();
    while let Some(option) = words.next() {
        if option == "--help" {
            bail!(USAGE);
        }
        let value = words.next().with_context(|| format!("{option} needs a value\n{USAGE}"))?;
        let number = || value.parse().with_context(|| format!("{option} {value}: not a number"));
        match option.as_str() {
            "--turns" => conversation.turns = number()?,
            "--command" => conversation.command = value,
            "--delay-ms" => conversation.delay = Duration::from_millis(number()? as u64),
            "--chunks" => conversation.chunks = Some(number()?),
            "--tokens" => conversation.tokens = number()?,
            _ => bail!("unknown option {option}\n{USAGE}"),
        }
    }
    Ok(conversation)
}
