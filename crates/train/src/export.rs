//! The command `export`: what a run has learnt, as files that other programs load.

use anyhow::Context;
use vocabulary::Vocabulary;

use crate::{
    args::ExportArgs,
    exit::{Usage, note},
};

/// Writes what is asked for.
pub(crate) fn run(args: &ExportArgs) -> anyhow::Result<()> {
    let trained = training::trained(&args.run, args.step)?;
    let (net, model) = (&trained.net, &trained.model);
    if let Some(dir) = &args.to {
        net.save(dir).with_context(|| format!("cannot write the model to {}", dir.display()))?;
        let vocabulary = Vocabulary::load(model)?;
        vocabulary
            .save(dir)
            .with_context(|| format!("cannot write the vocabulary to {}", dir.display()))?;
        note(&format!("step {} as a model in {}", trained.step, dir.display()));
    }
    let adapted = net.lora().is_some();
    if !adapted && (args.adapter.is_some() || args.peft.is_some()) {
        let text = "this run trained the weights themselves, so there is no adapter; use --to";
        return Err(Usage(text.into()).into());
    }
    if let Some(path) = &args.adapter {
        let name = args.run.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_else(|| "adapter".into());
        net.save_adapter_gguf(path, &name)
            .with_context(|| format!("cannot write the adapter to {}", path.display()))?;
        note(&format!("step {} as an adapter in {}", trained.step, path.display()));
    }
    if let Some(dir) = &args.peft {
        net.save_adapter(dir, &model.to_string_lossy())
            .with_context(|| format!("cannot write the adapter to {}", dir.display()))?;
        note(&format!("step {} as an adapter in {}", trained.step, dir.display()));
    }
    Ok(())
}
