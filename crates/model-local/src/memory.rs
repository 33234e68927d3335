//! How much memory a model takes, and how much there is: what does not fit is refused with a reason, before
//! the kernel ends the process without one.
//!
//! Estimates. What it cannot find out it does not hold against anybody.

use std::{
    fs,
    path::{Path, PathBuf},
};

use llama_cpp_2::gguf::GgufContext;

use crate::{Options, engine::BATCH, load::USUAL_CONTEXT, log};

/// What a model takes, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// The file.
    pub(crate) weights: u64,
    /// The conversations, and the intermediate results.
    pub(crate) work: u64,
    /// Tokens of one conversation.
    pub(crate) context: u32,
}

impl Need {
    pub(crate) fn all(&self) -> u64 {
        self.weights.saturating_add(self.work)
    }
}

/// What the model in this file takes. Nothing where its header does not say; others say what is wrong with it.
pub(crate) fn needed(path: &Path, options: &Options) -> Option<Need> {
    let weights = fs::metadata(path).ok()?.len();
    let (header, _) = log::listening(|| GgufContext::from_file(path));
    let header = header?;
    let architecture = text(&header, "general.architecture")?;
    let number = |key: &str| number(&header, &format!("{architecture}.{key}"));
    let trained = u32::try_from(number("context_length")?).ok()?;
    let context = options.context.map_or(trained.min(USUAL_CONTEXT), |asked| asked.get());
    if context > trained {
        return None;
    }
    let cache = Cache {
        layers: number("block_count")?,
        heads: number("attention.head_count"),
        // Where layers differ nobody counts them one by one.
        shared_heads: number("attention.head_count_kv"),
        width: number("embedding_length")?,
        key: number("attention.key_length"),
        value: number("attention.value_length"),
    };
    let tokens = u64::from(context).saturating_mul(u64::from(options.sequences.get()));
    let vocabulary = number("vocab_size").unwrap_or(FEW_WORDS);
    let results = vocabulary.saturating_mul(u64::from(BATCH)).saturating_mul(4);
    let work = cache.token().saturating_mul(tokens).saturating_add(results);
    Some(Need { weights, work, context })
}

/// Most models know more words than that.
const FEW_WORDS: u64 = 32_000;

/// What is remembered of every token.
struct Cache {
    layers: u64,
    heads: Option<u64>,
    shared_heads: Option<u64>,
    width: u64,
    key: Option<u64>,
    value: Option<u64>,
}

impl Cache {
    /// Bytes of one token: a key and a value of two bytes a number, for each head of each layer.
    fn token(&self) -> u64 {
        let (Some(heads), Some(shared)) = (self.heads, self.shared_heads) else { return 0 };
        let usual = self.width / heads.max(1);
        let numbers = self.key.unwrap_or(usual).saturating_add(self.value.unwrap_or(usual));
        self.layers.saturating_mul(shared).saturating_mul(numbers).saturating_mul(2)
    }
}

/// Kinds of values in a header; to ask for another than is there ends the process.
const U32: u32 = 4;
const STRING: u32 = 8;

fn number(header: &GgufContext, key: &str) -> Option<u64> {
    let at = header.find_key(key);
    (at >= 0 && header.kv_type(at) == U32).then(|| u64::from(header.val_u32(at)))
}

fn text(header: &GgufContext, key: &str) -> Option<String> {
    let at = header.find_key(key);
    (at >= 0 && header.kv_type(at) == STRING).then(|| header.val_str(at).map(str::to_owned))?
}

/// Bytes this process may still use: the machine's, or what its control groups leave of them.
pub(crate) fn free() -> Option<u64> {
    free_below(Path::new("/"))
}

fn free_below(root: &Path) -> Option<u64> {
    let machine = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let kibibytes = |key: &str| {
        let line = machine.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()
    };
    let machine = kibibytes("MemAvailable:")?.saturating_add(kibibytes("SwapFree:").unwrap_or(0));
    let groups = groups(root).into_iter().filter_map(|group| group.left());
    Some(groups.fold(machine.saturating_mul(1024), u64::min))
}

/// A control group that may have a limit.
struct Group {
    dir: PathBuf,
    kind: Kind,
}

/// The kernel's two ways of telling.
#[derive(Clone, Copy)]
enum Kind {
    One,
    Two,
}

/// The groups this process is in, with all above them.
fn groups(root: &Path) -> Vec<Group> {
    let lines = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut groups = Vec::new();
    for line in lines.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (kind, top) = match controllers {
            "" => (Kind::Two, "sys/fs/cgroup"),
            _ if controllers.split(',').any(|one| one == "memory") => {
                (Kind::One, "sys/fs/cgroup/memory")
            }
            _ => continue,
        };
        // In a container the path may be one outside: its own group is then at the top.
        let mut dir = root.join(top);
        groups.push(Group { dir: dir.clone(), kind });
        for name in path.split('/').filter(|name| !matches!(*name, "" | "." | "..")) {
            dir.push(name);
            groups.push(Group { dir: dir.clone(), kind });
        }
    }
    groups
}

impl Group {
    /// What its limit leaves. What it holds of files can be given back.
    fn left(&self) -> Option<u64> {
        let (limit, used, files) = match self.kind {
            Kind::One => (
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                ["total_active_file", "total_inactive_file"],
            ),
            Kind::Two => ("memory.max", "memory.current", ["active_file", "inactive_file"]),
        };
        let limit = self.read(limit)?.trim().parse::<u64>().ok()?;
        let used = self.read(used)?.trim().parse::<u64>().ok()?;
        let counts = self.read("memory.stat").unwrap_or_default();
        let counted = |line: &str| {
            let (key, count) = line.split_once(' ')?;
            files.contains(&key).then(|| count.trim().parse::<u64>().ok())?
        };
        let given_back: u64 = counts.lines().filter_map(counted).sum();
        Some(limit.saturating_sub(used.saturating_sub(given_back)))
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.dir.join(name)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:       24000 kB\nMemAvailable:   20000 kB\nSwapTotal: 9 kB\nSwapFree:           4 kB\n";

    fn machine(cgroup: &str, files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let all = [("proc/meminfo", MEMINFO), ("proc/self/cgroup", cgroup)];
        for (name, text) in all.iter().chain(files) {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn without_limits_it_is_the_machines() {
        let free = Some(20_004 * 1024);
        assert_eq!(free_below(machine("", &[]).path()), free);
        let unlimited = [
            ("sys/fs/cgroup/a/memory.max", "max\n"),
            ("sys/fs/cgroup/a/memory.current", "4096\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "4096\n"),
        ];
        let machine = machine("0::/a\n4:memory:/gone\n", &unlimited);
        assert_eq!(free_below(machine.path()), free);
        assert_eq!(free_below(&machine.path().join("nowhere")), None);
    }

    #[test]
    fn the_tightest_group_counts() {
        let files = [
            ("sys/fs/cgroup/a/memory.max", "1000000\n"),
            ("sys/fs/cgroup/a/memory.current", "600000\n"),
            (
                "sys/fs/cgroup/a/memory.stat",
                "anon 5\nactive_file 200000\ninactive_file 100000\nfile 1\n",
            ),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/b/memory.current", "1\n"),
        ];
        assert_eq!(free_below(machine("0::/a/b\n", &files).path()), Some(700_000));
    }

    #[test]
    fn older_kernels_are_understood() {
        let files = [
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1500000\n"),
            ("sys/fs/cgroup/memory/memory.stat", "total_inactive_file 100000\n"),
        ];
        let cgroup = "5:cpu,cpuacct:/x\n4:memory:/outside/of/the/container\n";
        assert_eq!(free_below(machine(cgroup, &files).path()), Some(600_000));
    }

    #[test]
    fn what_is_remembered_is_counted() {
        let qwen = Cache {
            layers: 28,
            heads: Some(12),
            shared_heads: Some(2),
            width: 1536,
            key: None,
            value: None,
        };
        assert_eq!(qwen.token(), 28_672);
        assert_eq!(Cache { shared_heads: None, ..qwen }.token(), 0);
    }
}
