//! The analyses of a comparison as Markdown tables: a row per set, a column per measure.

use std::fmt::Write;

use super::{
    Capability::{Computation, External, File},
    Classifier::{Extended, Paper},
    Compared, Comparison, Difference,
    Measure::{
        self, AtLimit, ChecksItself, CutOff, EnvironmentTokens, IsStructured, Pattern,
        ResponseTokens, RunsPrograms, Turns, TurnsRunningPrograms, TurnsUsing, Uses, Verifies,
        Words,
    },
};
use crate::{analysis::StylePattern, markdown::plain, text::excerpt};

/// Characters of a set's name.
const NAME: usize = 80;

/// A table: its title, what its cells are, and its columns.
struct Layout {
    title: &'static str,
    about: &'static str,
    columns: &'static [(&'static str, Measure)],
}

/// All tables. The columns of a table have the same source: records, events of sandbox episodes, or plain responses.
const LAYOUTS: [Layout; 8] = [
    Layout {
        title: "Turns, tokens and limits",
        about: "Per episode; at a limit: episodes that ended at the limit of turns, tokens or time",
        columns: &[
            ("turns", Turns),
            ("environment tokens", EnvironmentTokens),
            ("sampled tokens", ResponseTokens),
            ("at a limit", AtLimit),
        ],
    },
    Layout {
        title: "Use of the sandbox, by the paper's patterns",
        about: "Share of an episode's turns",
        columns: &[
            ("external", TurnsUsing(Paper, External)),
            ("files", TurnsUsing(Paper, File)),
            ("computation", TurnsUsing(Paper, Computation)),
        ],
    },
    Layout {
        title: "Use of the sandbox, by what commands and programs do",
        about: "Share of an episode's turns; programs: the turn writes or runs one, of whatever kind; cut off: at the token limit of a \
                response",
        columns: &[
            ("external", TurnsUsing(Extended, External)),
            ("files", TurnsUsing(Extended, File)),
            ("computation", TurnsUsing(Extended, Computation)),
            ("programs", TurnsRunningPrograms),
            ("cut off", CutOff),
        ],
    },
    Layout {
        title: "Episodes that use the sandbox in any turn",
        about: "By what commands and programs do; share of episodes",
        columns: &[
            ("external", Uses(External)),
            ("files", Uses(File)),
            ("computation", Uses(Computation)),
            ("programs", RunsPrograms),
        ],
    },
    Layout {
        title: "Plain responses",
        about: "Words per response; share of responses with a word of verification, that check their own result, and that \
                have a visible structure",
        columns: &[
            ("words", Words),
            ("word of verification", Verifies),
            ("check their result", ChecksItself),
            ("structured", IsStructured),
        ],
    },
    Layout {
        title: "Plain responses: verification and doubt",
        about: "Occurrences per response",
        columns: &[
            ("verification", Pattern(StylePattern::Verification)),
            ("announcement", Pattern(StylePattern::Announcement)),
            ("reconsideration", Pattern(StylePattern::Reconsideration)),
        ],
    },
    Layout {
        title: "Plain responses: lines",
        about: "Occurrences per response",
        columns: &[
            ("heading", Pattern(StylePattern::Heading)),
            ("numbered", Pattern(StylePattern::Numbered)),
            ("bullet", Pattern(StylePattern::Bullet)),
        ],
    },
    Layout {
        title: "Plain responses: order",
        about: "Occurrences per response",
        columns: &[
            ("step", Pattern(StylePattern::Step)),
            ("sequence", Pattern(StylePattern::Sequence)),
            ("conclusion", Pattern(StylePattern::Conclusion)),
        ],
    },
];

/// Renders the analyses of a comparison; empty where there are none.
pub fn markdown(found: &Comparison) -> String {
    let mut out = String::new();
    for layout in &LAYOUTS {
        table(&mut out, layout, &found.sets);
    }
    if !out.is_empty() {
        out.push_str(
            "First → second, difference [95% bootstrap interval over problems]. The intervals are not corrected for the \
             number of measures and sets.\n",
        );
    }
    out
}

/// Writes a table of the sets that have any of its measures.
fn table(out: &mut String, layout: &Layout, sets: &[Compared]) {
    let cells = |set| -> Vec<Option<&Difference>> {
        layout.columns.iter().map(|(_, measure)| found(set, *measure)).collect()
    };
    let mut rows: Vec<_> = sets.iter().map(|set| (set, cells(set))).collect();
    rows.retain(|(_, cells)| cells.iter().any(Option::is_some));
    if rows.is_empty() {
        return;
    }
    let heads: Vec<&str> = layout.columns.iter().map(|(name, _)| *name).collect();
    let _ = write!(
        out,
        "### {}\n\n{}.\n\n| set | problems | {} |\n|---|---:|{}\n",
        layout.title,
        layout.about,
        heads.join(" | "),
        "---:|".repeat(heads.len())
    );
    for (set, cells) in rows {
        let problems = cells.iter().flatten().map(|cell| cell.problems).min().unwrap_or(0);
        let _ = write!(out, "| {} | {problems} |", plain(&excerpt(&set.set, NAME)));
        for ((_, measure), difference) in layout.columns.iter().zip(cells) {
            let text = difference.map_or_else(|| "–".to_owned(), |it| cell(*measure, it));
            let _ = write!(out, " {text} |");
        }
        out.push('\n');
    }
    out.push('\n');
}

fn found(set: &Compared, measure: Measure) -> Option<&Difference> {
    let measures = &set.analyses.as_ref()?.measures;
    Some(&measures.iter().find(|found| found.measure == measure)?.difference)
}

/// Such as `12.3% → 17.2%, +4.8 [+0.8, +8.7]`.
fn cell(measure: Measure, found: &Difference) -> String {
    let (scale, sign) = if measure.is_share() { (100.0, "%") } else { (1.0, "") };
    let digits = match measure {
        _ if measure.is_share() => 1,
        EnvironmentTokens | ResponseTokens | Words => 0,
        _ => 2,
    };
    let [first, second] = found.means.map(|mean| scale * mean);
    let bounds = found.interval.map_or_else(String::new, |bounds| {
        let [low, high] = bounds.map(|bound| scale * bound);
        format!(" [{low:+.digits$}, {high:+.digits$}]")
    });
    let difference = scale * found.difference;
    format!("{first:.digits$}{sign} → {second:.digits$}{sign}, {difference:+.digits$}{bounds}")
}
