//! Differences between two texts, line by line, with some lines around them.

use serde::Serialize;

/// Equal lines shown around a difference.
const CONTEXT: usize = 3;
/// Pairs of lines that are compared; beyond, one text replaces the other.
const MOST_PAIRS: usize = 4_000_000;
/// Lines of a difference that are shown.
const MOST_LINES: usize = 2000;
/// Bytes of a line that are shown.
const LONGEST_LINE: usize = 2000;

/// A line of a difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct DiffLine {
    #[serde(rename = "type")]
    pub(crate) kind: DiffKind,
    pub(crate) text: String,
}

/// What a line of a difference is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DiffKind {
    /// Where the following lines are.
    Hunk,
    /// In both texts.
    Same,
    /// In the first only.
    Removed,
    /// In the second only.
    Added,
}

/// The difference of two texts, and whether some of it is left out.
pub(super) fn lines(before: &str, after: &str) -> (Vec<DiffLine>, bool) {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let all = compare(&old, &new);
    let mut shown = Vec::new();
    let mut cut = false;
    let (mut old_at, mut new_at) = (0, 0);
    let mut hunk: Option<Hunk> = None;
    for (at, (kind, text)) in all.iter().enumerate() {
        let (first, last) = (at.saturating_sub(CONTEXT), (at + CONTEXT).min(all.len() - 1));
        let near = all[first..=last].iter().any(|(kind, _)| *kind != DiffKind::Same);
        if near && shown.len() >= MOST_LINES {
            cut = true;
            break;
        }
        let (of_old, of_new) = (*kind != DiffKind::Added, *kind != DiffKind::Removed);
        if near {
            let open = hunk.get_or_insert_with(|| {
                shown.push(DiffLine { kind: DiffKind::Hunk, text: String::new() });
                Hunk { line: shown.len() - 1, old: (old_at, 0), new: (new_at, 0) }
            });
            open.old.1 += usize::from(of_old);
            open.new.1 += usize::from(of_new);
            let end = crate::text::floor(text, LONGEST_LINE);
            cut |= end < text.len();
            shown.push(DiffLine { kind: *kind, text: text[..end].to_owned() });
        } else if let Some(hunk) = hunk.take() {
            hunk.close(&mut shown);
        }
        old_at += usize::from(of_old);
        new_at += usize::from(of_new);
    }
    if let Some(hunk) = hunk {
        hunk.close(&mut shown);
    }
    (shown, cut)
}

/// Lines around differences: where its header is, and of each text the lines before it and its own.
struct Hunk {
    line: usize,
    old: (usize, usize),
    new: (usize, usize),
}

impl Hunk {
    /// Writes the header as `diff -u` does: an empty range is at the line before it.
    fn close(self, shown: &mut [DiffLine]) {
        let range = |(before, own): (usize, usize)| match own {
            0 => format!("{before},0"),
            1 => (before + 1).to_string(),
            _ => format!("{},{own}", before + 1),
        };
        shown[self.line].text = format!("@@ -{} +{} @@", range(self.old), range(self.new));
    }
}

fn compare<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<(DiffKind, &'a str)> {
    let start = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (old_rest, new_rest) = (&old[start..], &new[start..]);
    let end = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(a, b)| a == b).count();
    let (old_mid, new_mid) = (&old_rest[..old_rest.len() - end], &new_rest[..new_rest.len() - end]);
    let same = |line: &&'a str| (DiffKind::Same, *line);
    let mut all: Vec<_> = old[..start].iter().map(same).collect();
    match old_mid.len().saturating_mul(new_mid.len()) {
        ..=MOST_PAIRS => middle(old_mid, new_mid, &mut all),
        _ => {
            all.extend(old_mid.iter().map(|line| (DiffKind::Removed, *line)));
            all.extend(new_mid.iter().map(|line| (DiffKind::Added, *line)));
        }
    }
    all.extend(old_rest[old_rest.len() - end..].iter().map(same));
    all
}

/// The longest common subsequence, by a table.
fn middle<'a>(old: &[&'a str], new: &[&'a str], all: &mut Vec<(DiffKind, &'a str)>) {
    let width = new.len() + 1;
    let mut common = vec![0_u32; (old.len() + 1) * width];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i * width + j] = match old[i] == new[j] {
                true => common[(i + 1) * width + j + 1] + 1,
                false => common[(i + 1) * width + j].max(common[i * width + j + 1]),
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    while i < old.len() || j < new.len() {
        let both = i < old.len() && j < new.len();
        if both && old[i] == new[j] {
            all.push((DiffKind::Same, old[i]));
            (i, j) = (i + 1, j + 1);
        } else if j >= new.len()
            || (both && common[(i + 1) * width + j] >= common[i * width + j + 1])
        {
            all.push((DiffKind::Removed, old[i]));
            i += 1;
        } else {
            all.push((DiffKind::Added, new[j]));
            j += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(before: &str, after: &str) -> String {
        let (lines, _) = lines(before, after);
        let mark = |line: &DiffLine| match line.kind {
            DiffKind::Hunk => line.text.clone(),
            DiffKind::Same => format!(" {}", line.text),
            DiffKind::Removed => format!("-{}", line.text),
            DiffKind::Added => format!("+{}", line.text),
        };
        lines.iter().map(mark).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn differences_have_context() {
        assert_eq!(shown("a\nb\nc", "a\nx\nc"), "@@ -1,3 +1,3 @@\n a\n-b\n+x\n c");
        assert_eq!(shown("a", "b"), "@@ -1 +1 @@\n-a\n+b");
        assert_eq!(shown("a", "a"), "");
        let many: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        let before = many.join("\n");
        let after = before.replace("10", "ten");
        let expected = "@@ -8,7 +8,7 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13";
        assert_eq!(shown(&before, &after), expected);
    }

    #[test]
    fn headers_count_the_lines_of_each_side() {
        assert_eq!(shown("", "a\nb"), "@@ -0,0 +1,2 @@\n+a\n+b");
        assert_eq!(shown("a\nb", ""), "@@ -1,2 +0,0 @@\n-a\n-b");
        let old: Vec<String> = (1..=30).map(|n| n.to_string()).collect();
        let mut new = old.clone();
        new.remove(23);
        new.insert(5, "five".to_owned());
        let text = shown(&old.join("\n"), &new.join("\n"));
        let headers: Vec<&str> = text.lines().filter(|line| line.starts_with("@@")).collect();
        assert_eq!(headers, ["@@ -3,6 +3,7 @@", "@@ -21,7 +22,6 @@"]);
    }

    #[test]
    fn texts_that_are_too_long_replace_each_other() {
        let one = (0..3000).map(|n| format!("a{n}\n")).collect::<String>();
        let other = (0..3000).map(|n| format!("b{n}\n")).collect::<String>();
        let (lines, cut) = lines(&one, &other);
        assert!(cut && lines.len() <= MOST_LINES + 1);
    }
}
