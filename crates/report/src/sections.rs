//! What a report says, in the order it says it: text, tables and figures that belong to no format yet.
//!
//! Markdown and page are two ways to write these blocks down. Cells hold plain text; whoever writes escapes.

mod behaviour;
mod compare;
mod efficiency;
mod failures;
mod method;
mod overview;
mod scores;

use crate::Report;

/// Rows of a table; the caption counts the rest.
const ROWS: usize = 500;

/// The heading of the column that names systems.
const MODEL: &str = "model";

/// A part of a report, with its heading.
#[derive(Debug)]
pub(crate) struct Section {
    /// Where links lead.
    pub(crate) id: &'static str,
    /// Its heading.
    pub(crate) title: &'static str,
    /// What it says.
    pub(crate) blocks: Vec<Block>,
}

/// A piece of a section.
#[derive(Debug)]
pub(crate) enum Block {
    /// A paragraph.
    Text(String),
    /// Points.
    List(Vec<String>),
    /// A table.
    Table(Table),
    /// A figure, for formats that can show one.
    Figure(Figure),
}

/// A drawing and what it shows.
#[derive(Debug)]
pub(crate) struct Figure {
    /// The drawing; safe to be put into a page as it is.
    pub(crate) svg: String,
    /// What is shown, and how.
    pub(crate) caption: String,
}

/// A table.
#[derive(Debug)]
pub(crate) struct Table {
    /// What is shown, and how.
    pub(crate) caption: String,
    /// The headings of its columns.
    pub(crate) columns: Vec<Column>,
    /// Its rows.
    pub(crate) rows: Vec<Vec<Cell>>,
}

/// A column.
#[derive(Debug)]
pub(crate) struct Column {
    /// Its heading.
    pub(crate) name: String,
    /// Where its cells hang.
    pub(crate) align: Align,
}

/// Where cells hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// At the left: words.
    Left,
    /// At the right: numbers.
    Right,
}

/// A cell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    /// What it shows.
    pub(crate) text: String,
    /// What it is sorted by, where that is a number.
    pub(crate) value: Option<f64>,
    /// The file it leads to.
    pub(crate) link: Option<String>,
}

/// Everything a report says.
pub(crate) fn sections(report: &Report) -> Vec<Section> {
    let mut all = summary(report);
    all.extend([
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
    one_name_is_enough(report, &mut all);
    all
}

/// What matters most.
pub(crate) fn summary(report: &Report) -> Vec<Section> {
    let mut all =
        vec![overview::overview(report), scores::scores(report), compare::compare(report)];
    all.retain(|section| !section.blocks.is_empty());
    one_name_is_enough(report, &mut all);
    all
}

impl Table {
    /// A table with these columns: a name that begins with `>` hangs at the right.
    fn new(caption: impl Into<String>, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|name| Column::new(name)).collect();
        Self { caption: caption.into(), columns, rows: Vec::new() }
    }

    fn push(&mut self, row: Vec<Cell>) {
        self.rows.push(row);
    }

    /// The table as a block, cut to a size that can be read; none without rows.
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

    /// A number, as it is shown.
    fn number(value: f64, text: impl Into<String>) -> Self {
        Self { text: text.into(), value: Some(value), link: None }
    }

    /// A count.
    fn count(count: usize) -> Self {
        Self::number(count as f64, crate::numbers::count(count as f64))
    }

    /// A number that may not be known.
    fn known(value: Option<f64>, show: impl Fn(f64) -> String) -> Self {
        value.map_or_else(Self::none, |value| Self::number(value, show(value)))
    }

    /// Nothing to show.
    fn none() -> Self {
        Self::text("–")
    }
}

/// Takes the column of models out of tables that would repeat a single one in every row.
fn one_name_is_enough(report: &Report, sections: &mut [Section]) {
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

/// The figure as a block, where there is one.
fn figure(svg: Option<String>, caption: &str) -> Option<Block> {
    svg.map(|svg| Block::Figure(Figure { svg, caption: caption.to_owned() }))
}

/// The system's name where there are several, as the heading of rows.
fn group(report: &Report, label: &str) -> String {
    if report.systems.len() > 1 { label.to_owned() } else { String::new() }
}
