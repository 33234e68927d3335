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
    let mut last_shown = None;
    for (at, (kind, text)) in all.iter().enumerate() {
        let (first, last) = (at.saturating_sub(CONTEXT), (at + CONTEXT).min(all.len() - 1));
        let near = all[first..=last].iter().any(|(kind, _)| *kind != DiffKind::Same);
        if near {
            if shown.len() >= MOST_LINES {
                cut = true;
                break;
            }
            if last_shown != at.checked_sub(1) || at == 0 {
                let text = format!("@@ -{} +{} @@", old_at + 1, new_at + 1);
                shown.push(DiffLine { kind: DiffKind::Hunk, text });
            }
            last_shown = Some(at);
            let end = crate::text::floor(text, LONGEST_LINE);
            cut |= end < text.len();
            shown.push(DiffLine { kind: *kind, text: text[..end].to_owned() });
        }
        old_at += usize::from(*kind != DiffKind::Added);
        new_at += usize::from(*kind != DiffKind::Removed);
    }
    (shown, cut)
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
        assert_eq!(shown("a\nb\nc", "a\nx\nc"), "@@ -1 +1 @@\n a\n-b\n+x\n c");
        assert_eq!(shown("", "a\nb"), "@@ -1 +1 @@\n+a\n+b");
        assert_eq!(shown("a", "a"), "");
        let many: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        let before = many.join("\n");
        let after = before.replace("10", "ten");
        let expected = "@@ -8 +8 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13";
        assert_eq!(shown(&before, &after), expected);
    }

    #[test]
    fn texts_that_are_too_long_replace_each_other() {
        let one = (0..3000).map(|n| format!("a{n}\n")).collect::<String>();
        let other = (0..3000).map(|n| format!("b{n}\n")).collect::<String>();
        let (lines, cut) = lines(&one, &other);
        assert!(cut && lines.len() <= MOST_LINES + 1);
    }
}
