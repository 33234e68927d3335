//! The sections of a report: text, tables and figures independent of the output format.
//!
//! Markdown and HTML render the same blocks. Cells hold plain text; renderers escape it.

mod behaviour;
mod changes;
mod comparison;
mod effect;
mod efficiency;
mod failures;
mod method;
mod overview;
mod scores;
mod settings;

use plot::{Color, count, points};
use results::Mode;

use crate::{
    Report,
    numbers::p_text,
    stats::{Paired, Test},
};

/// Rows of a table, at most; the caption counts the rest.
const ROWS: usize = 500;

/// Heading of the column that names systems.
const MODEL: &str = "model";

/// Colors and names of the modes in figures.
const MODES: [(Color, &str); 2] = [(Color::Muted, "llm"), (Color::Series(0), "sandbox")];

/// A section of a report.
#[derive(Debug)]
pub(crate) struct Section {
    /// Anchor of links.
    pub(crate) id: &'static str,
    /// Heading.
    pub(crate) title: &'static str,
    /// Content.
    pub(crate) blocks: Vec<Block>,
}

/// An element of a section.
#[derive(Debug)]
pub(crate) enum Block {
    /// A paragraph.
    Text(String),
    /// A list.
    List(Vec<String>),
    /// Details that a page shows on demand: their heading and text.
    Folded(String, String),
    /// A table.
    Table(Table),
    /// A figure, for formats that can show it.
    Figure(Figure),
}

/// A chart with its caption.
#[derive(Debug)]
pub(crate) struct Figure {
    /// An SVG element, already escaped.
    pub(crate) svg: String,
    /// Caption.
    pub(crate) caption: String,
}

/// A table.
#[derive(Debug)]
pub(crate) struct Table {
    /// Caption.
    pub(crate) caption: String,
    /// Columns.
    pub(crate) columns: Vec<Column>,
    /// Rows.
    pub(crate) rows: Vec<Vec<Cell>>,
}

/// A column of a table.
#[derive(Debug)]
pub(crate) struct Column {
    /// Heading.
    pub(crate) name: String,
    /// Alignment of its cells.
    pub(crate) align: Align,
}

/// Alignment of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// Left, for text.
    Left,
    /// Right, for numbers.
    Right,
}

/// A cell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    /// Text shown.
    pub(crate) text: String,
    /// Number it is sorted by.
    pub(crate) value: Option<f64>,
    /// Relative path it links to.
    pub(crate) link: Option<String>,
}

/// All sections.
pub(crate) fn sections(report: &Report) -> Vec<Section> {
    let mut all = summary(report);
    all.extend([
        changes::changes(report),
        scores::attempts(report),
        scores::pass(report),
        behaviour::turns(report),
        efficiency::tokens(report),
        efficiency::resources(report),
        behaviour::capabilities(report),
        behaviour::answers(report),
        failures::leaks(report),
        failures::failures(report),
        method::runs(report),
        method::method(report),
    ]);
    all.retain(|section| !section.blocks.is_empty());
    drop_single_model(report, &mut all);
    all
}

/// The most important sections.
pub(crate) fn summary(report: &Report) -> Vec<Section> {
    let mut all = vec![
        settings::settings(report),
        overview::overview(report),
        comparison::comparison(report),
        scores::scores(report),
        effect::effect(report),
    ];
    all.retain(|section| !section.blocks.is_empty());
    drop_single_model(report, &mut all);
    all
}

/// Title of a report, by what it is about.
pub(crate) fn title(report: &Report) -> &'static str {
    match (report.systems.len(), Coverage::of(report)) {
        (2.., _) => "Comparison of benchmark runs",
        (_, Coverage::Both) => "With and without a sandbox",
        (_, Coverage::Sandbox) => "Benchmark results with a sandbox",
        (_, Coverage::Llm) => "Benchmark results without a sandbox",
        (_, Coverage::Nothing) => "Benchmark results",
    }
}

/// The modes a report has attempts of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coverage {
    /// Both.
    Both,
    /// With a sandbox only.
    Sandbox,
    /// Without a sandbox only.
    Llm,
    /// None yet.
    Nothing,
}

impl Coverage {
    pub(crate) fn of(report: &Report) -> Self {
        let tasks = || report.systems.iter().flat_map(|system| &system.tasks);
        let llm = tasks().any(|task| task.llm.is_some());
        let sandbox = tasks().any(|task| task.sandbox.is_some());
        match (llm, sandbox) {
            (true, true) => Self::Both,
            (false, true) => Self::Sandbox,
            (true, false) => Self::Llm,
            (false, false) => Self::Nothing,
        }
    }

    /// Names both modes behind a text where the report has both.
    fn naming_modes(self, text: &str) -> String {
        match self {
            Self::Both => format!("{text}, without and with a sandbox"),
            _ => text.to_owned(),
        }
    }
}

impl Table {
    /// A table with these columns; a name that begins with `>` is aligned right.
    fn new(caption: impl Into<String>, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|name| Column::new(name)).collect();
        Self { caption: caption.into(), columns, rows: Vec::new() }
    }

    fn push(&mut self, row: Vec<Cell>) {
        self.rows.push(row);
    }

    /// The table as a block, cut to a readable size; `None` without rows.
    fn block(mut self) -> Option<Block> {
        let all = self.rows.len();
        if all > ROWS {
            self.rows.truncate(ROWS);
            self.caption = format!("{} The first {ROWS} of {all} rows.", self.caption);
        }
        (all > 0).then_some(Block::Table(self))
    }
}

impl Column {
    fn new(name: &str) -> Self {
        let (name, align) = match name.strip_prefix('>') {
            Some(name) => (name, Align::Right),
            None => (name, Align::Left),
        };
        Self { name: name.to_owned(), align }
    }
}

impl Cell {
    /// A text.
    fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A number and its formatted text.
    fn number(value: f64, text: impl Into<String>) -> Self {
        Self { text: text.into(), value: Some(value), link: None }
    }

    /// A count.
    fn count(count: usize) -> Self {
        Self::number(count as f64, plot::count(count as f64))
    }

    /// A number that may be unknown.
    fn known(value: Option<f64>, show: impl Fn(f64) -> String) -> Self {
        value.map_or_else(Self::none, |value| Self::number(value, show(value)))
    }

    /// An empty cell.
    fn none() -> Self {
        Self::text("–")
    }
}

/// A number with its noun, in the singular or the plural.
fn plural(number: usize, [one, many]: [&str; 2]) -> String {
    format!("{} {}", count(number as f64), if number == 1 { one } else { many })
}

/// A confidence interval in percentage points.
fn interval(found: Option<[f64; 2]>) -> Cell {
    let shown =
        |[low, high]: [f64; 2]| Cell::number(low, format!("{} to {}", points(low), points(high)));
    found.map_or_else(Cell::none, shown)
}

/// Name of the test behind a p-value.
fn test(found: &Paired) -> &'static str {
    match found.test {
        Test::Mcnemar => "McNemar",
        Test::SignFlipsExact => "sign-flip",
        Test::SignFlips => "sign-flip (Monte Carlo)",
    }
}

/// Difference and Holm-corrected p-value beside a point of a figure.
fn note(found: &Paired, p_holm: Option<f64>) -> String {
    let p = p_holm.map(|p| format!("  {}", p_text(p)));
    format!("{}{}", points(found.difference), p.unwrap_or_default())
}

/// Confidence interval and Holm-corrected p-value of a difference, within a sentence.
fn uncertainty(found: &Paired, p_holm: Option<f64>) -> String {
    let p = p_holm.unwrap_or(found.p);
    let interval =
        found.bootstrap.map(|[low, high]| format!("95% CI {} to {}, ", points(low), points(high)));
    let significance = if p < 0.05 { "" } else { ", not significant" };
    format!("{}Holm-corrected {}{significance}", interval.unwrap_or_default(), p_text(p))
}

/// Removes the column of models where there is only one.
fn drop_single_model(report: &Report, sections: &mut [Section]) {
    if report.systems.len() != 1 {
        return;
    }
    for block in sections.iter_mut().flat_map(|section| &mut section.blocks) {
        if let Block::Table(table) = block
            && table.columns.first().is_some_and(|column| column.name == MODEL)
        {
            table.columns.remove(0);
            table.rows.iter_mut().for_each(|row| drop(row.remove(0)));
        }
    }
}

/// Color of a mode in figures.
fn color(mode: Mode) -> Color {
    match mode {
        Mode::Llm => MODES[0].0,
        Mode::Sandbox => MODES[1].0,
    }
}

/// The figure as a block; `None` without a chart.
fn figure(svg: Option<String>, caption: &str) -> Option<Block> {
    svg.map(|svg| Block::Figure(Figure { svg, caption: caption.to_owned() }))
}

/// The label of a system as a row heading, where there are several systems.
fn group(report: &Report, label: &str) -> String {
    if report.systems.len() > 1 { label.to_owned() } else { String::new() }
}
