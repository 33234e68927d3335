//! Estimates the memory a model needs and the memory available, so that loading fails with a reason instead of the
//! kernel killing the process.
//!
//! Estimates only: what cannot be determined is not counted.

use std::{
    fs,
    path::{Path, PathBuf},
};

use llama_cpp_2::gguf::GgufContext;

use crate::{Options, engine::BATCH, load::DEFAULT_CONTEXT, log};

/// Estimated memory of a model, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryEstimate {
    /// The weights: the file's size.
    pub(crate) weights: u64,
    /// The KV cache and the intermediate results.
    pub(crate) work: u64,
    /// The context length of one conversation in tokens.
    pub(crate) context: u32,
}

impl MemoryEstimate {
    pub(crate) fn total(&self) -> u64 {
        self.weights.saturating_add(self.work)
    }
}

/// The memory the model in this file needs; `None` where the header does not tell. Loading reports an invalid header.
pub(crate) fn estimate(path: &Path, options: &Options) -> Option<MemoryEstimate> {
    let weights = fs::metadata(path).ok()?.len();
    let (header, _) = log::capture_errors(|| GgufContext::from_file(path));
    let header = header?;
    let architecture = text(&header, "general.architecture")?;
    let number = |key: &str| number(&header, &format!("{architecture}.{key}"));
    let trained = u32::try_from(number("context_length")?).ok()?;
    let context = options.context.map_or(trained.min(DEFAULT_CONTEXT), |asked| asked.get());
    if context > trained {
        return None;
    }
    let cache = Cache {
        layers: number("block_count")?,
        heads: number("attention.head_count"),
        // A list where layers differ: then the cache is not estimated.
        shared_heads: number("attention.head_count_kv"),
        width: number("embedding_length")?,
        key: number("attention.key_length"),
        value: number("attention.value_length"),
    };
    let tokens = u64::from(context).saturating_mul(u64::from(options.sequences.get()));
    let vocabulary = number("vocab_size").unwrap_or(MIN_VOCABULARY);
    let results = vocabulary.saturating_mul(u64::from(BATCH)).saturating_mul(4);
    let work = cache.bytes_per_token().saturating_mul(tokens).saturating_add(results);
    Some(MemoryEstimate { weights, work, context })
}

/// Assumed vocabulary where the header does not give it; most have more.
const MIN_VOCABULARY: u64 = 32_000;

/// The KV cache of a model.
struct Cache {
    layers: u64,
    heads: Option<u64>,
    shared_heads: Option<u64>,
    width: u64,
    key: Option<u64>,
    value: Option<u64>,
}

impl Cache {
    /// Bytes per token: keys and values of two bytes each, for every KV head of every layer.
    fn bytes_per_token(&self) -> u64 {
        let (Some(heads), Some(shared)) = (self.heads, self.shared_heads) else { return 0 };
        let usual = self.width / heads.max(1);
        let numbers = self.key.unwrap_or(usual).saturating_add(self.value.unwrap_or(usual));
        self.layers.saturating_mul(shared).saturating_mul(numbers).saturating_mul(2)
    }
}

/// Types of header values. Reading a value as another type would abort the process.
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

/// Bytes available to this process: the machine's, or less where control groups limit it.
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
    let groups = groups(root).into_iter().filter_map(|group| group.available());
    Some(groups.fold(machine.saturating_mul(1024), u64::min))
}

/// A control group that may have a limit.
struct Group {
    dir: PathBuf,
    version: Version,
}

/// The cgroup version.
#[derive(Clone, Copy)]
enum Version {
    V1,
    V2,
}

/// The groups of this process and all their parents.
fn groups(root: &Path) -> Vec<Group> {
    let lines = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut groups = Vec::new();
    for line in lines.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (version, top) = match controllers {
            "" => (Version::V2, "sys/fs/cgroup"),
            _ if controllers.split(',').any(|one| one == "memory") => {
                (Version::V1, "sys/fs/cgroup/memory")
            }
            _ => continue,
        };
        // In a container the path may be the host's: the own group is then at the top.
        let mut dir = root.join(top);
        groups.push(Group { dir: dir.clone(), version });
        for name in path.split('/').filter(|name| !matches!(*name, "" | "." | "..")) {
            dir.push(name);
            groups.push(Group { dir: dir.clone(), version });
        }
    }
    groups
}

impl Group {
    /// What its limit leaves. Its file cache can be reclaimed.
    fn available(&self) -> Option<u64> {
        let (limit, used, files) = match self.version {
            Version::V1 => (
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                ["total_active_file", "total_inactive_file"],
            ),
            Version::V2 => ("memory.max", "memory.current", ["active_file", "inactive_file"]),
        };
        let limit = self.read(limit)?.trim().parse::<u64>().ok()?;
        let used = self.read(used)?.trim().parse::<u64>().ok()?;
        let counts = self.read("memory.stat").unwrap_or_default();
        let counted = |line: &str| {
            let (key, count) = line.split_once(' ')?;
            files.contains(&key).then(|| count.trim().parse::<u64>().ok())?
        };
        let reclaimable: u64 = counts.lines().filter_map(counted).sum();
        Some(limit.saturating_sub(used.saturating_sub(reclaimable)))
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
    fn the_cache_is_counted() {
        let qwen = Cache {
            layers: 28,
            heads: Some(12),
            shared_heads: Some(2),
            width: 1536,
            key: None,
            value: None,
        };
        assert_eq!(qwen.bytes_per_token(), 28_672);
        assert_eq!(Cache { shared_heads: None, ..qwen }.bytes_per_token(), 0);
    }
}
