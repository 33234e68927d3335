//! Episodes of two runs beside each other, turn by turn, as one HTML page.
//!
//! Built from the same parts as the page of an episode, with the same bounds: the room for texts is shared by all
//! episodes of the page.

use std::fmt::Write;

use plot::{Images, Page, count};
use trajectory::{Line, Trajectory};

use super::{
    Notice, Picture,
    cut::{Look, Room, write},
    facts,
    html::{call_facts, prompt, turn_body},
    notices,
    picture::Gallery,
    pictures,
    text::{counted, isolated, time},
    turns::{BUDGET, Plan, Turn, plan_within, turns},
};
use crate::{
    text::excerpt,
    validation::{EpisodePair, EpisodeRecord},
};

/// Bytes of all texts of the turns on a page.
const ALL: usize = 8 << 20;
/// Bytes of one text outside the turns.
const ROOM: usize = 16 << 10;
/// Characters of a name.
const NAME: usize = 120;

/// A page of episodes beside each other; pairs are added one at a time, so that few are in memory.
#[derive(Debug)]
pub struct BesidePage {
    labels: [String; 2],
    budget: usize,
    gallery: Gallery,
    links: String,
    main: String,
    pairs: usize,
}

/// An episode and what was recorded of it.
pub(super) struct Side<'a> {
    pub(super) record: &'a EpisodeRecord,
    pub(super) recorded: bool,
    pub(super) trajectory: Trajectory,
    pub(super) notices: Vec<Notice>,
    pictures: Vec<Picture>,
}

impl<'a> Side<'a> {
    pub(super) fn new(record: &'a EpisodeRecord, lines: Option<&[Line]>) -> Self {
        let events = lines.unwrap_or_default();
        Self {
            record,
            recorded: lines.is_some(),
            trajectory: Trajectory::from_events(events),
            notices: notices(events),
            pictures: pictures(events),
        }
    }

    pub(super) fn turns(&self) -> Vec<Turn<'_>> {
        turns(&self.trajectory)
    }

    fn room(&self, most: usize) -> Room<'_> {
        Room { most, source: self.record.events.as_deref().unwrap_or_default() }
    }
}

impl BesidePage {
    /// A page for a number of pairs. The labels name the runs.
    pub fn new(labels: [&str; 2], pairs: usize) -> Self {
        Self {
            labels: labels.map(|label| excerpt(label, NAME)),
            budget: (ALL / (2 * pairs.max(1))).min(BUDGET),
            gallery: Gallery::default(),
            links: String::new(),
            main: String::new(),
            pairs: 0,
        }
    }

    /// Adds the episodes of a problem, with their events where there are any.
    pub fn add(&mut self, pair: &EpisodePair, events: [Option<&[Line]>; 2]) {
        self.pairs += 1;
        let id = format!("problem-{}", self.pairs);
        let name = isolated(&title(pair));
        let _ = write!(self.links, "<li><a href=\"#{id}\">{name}</a></li>");
        let _ = writeln!(
            self.main,
            "<section id=\"{id}\" aria-labelledby=\"{id}-title\">\n<h2 id=\"{id}-title\">{name}</h2>"
        );
        let sides = [0, 1].map(|at| Side::new(&pair.records[at], events[at]));
        self.task(&sides);
        self.heads(pair, &sides);
        self.rows(&id, &sides);
        self.main.push_str("</section>\n");
    }

    /// Renders the page: at most about 20 MB, and 16 MB more where it has images.
    pub fn finish(self) -> String {
        let [first, second] = &self.labels;
        let title = format!("{first} and {second}: episodes side by side");
        let header = format!(
            "<header><p class=\"kind\">Episodes side by side</p><h1>{} and {}</h1>\n<p class=\"models\">{}</p></header>\n\
             <nav aria-label=\"Contents\"><ul>{}</ul></nav>\n",
            isolated(first),
            isolated(second),
            counted(self.pairs, "problem"),
            self.links
        );
        let style = [include_str!("style.css"), include_str!("beside.css")].concat();
        Page {
            title: &title,
            style: &style,
            script: include_str!("script.js"),
            images: Images::Inline,
            header: &header,
            main: &self.main,
            footer: "Written by llm-in-sandbox.",
        }
        .render()
    }

    /// Writes the task, and the prompt where both episodes have the same.
    fn task(&mut self, sides: &[Side<'_>; 2]) {
        let Some(side) = sides.iter().find(|side| side.recorded) else { return };
        let room = side.room(ROOM);
        write(&mut self.main, Look::Prose, &side.trajectory.problem_statement, room);
        if has_same_prompt(sides) {
            prompt(&mut self.main, &side.trajectory, room, &mut self.gallery);
        }
    }

    fn heads(&mut self, pair: &EpisodePair, sides: &[Side<'_>; 2]) {
        self.main.push_str("<div class=\"pair heads\">");
        for (at, side) in sides.iter().enumerate() {
            let step = pair.steps[at];
            let _ = write!(
                self.main,
                "<div class=\"side\"><h3>{} <small>step {step}{}</small></h3>",
                isolated(&self.labels[at]),
                match pair.members[at] {
                    ..=1 => String::new(),
                    many => format!(", episode 1 of {many}"),
                }
            );
            facts_of(&mut self.main, side.record);
            if !has_same_prompt(sides) {
                prompt(&mut self.main, &side.trajectory, side.room(ROOM), &mut self.gallery);
            }
            facts::part(&mut self.main, "Answer", &side.record.answer, side.room(ROOM));
            if (side.record.answer.len() as u64) < side.record.answer_bytes {
                self.main.push_str("<p class=\"cut\">The rest of the answer is not stored.</p>");
            }
            if let Some(why) = &side.record.why {
                let why = isolated(&excerpt(why, 500));
                let _ = write!(self.main, "<p class=\"notice\">{why}</p>");
            }
            if !side.recorded {
                self.main.push_str("<p class=\"notice\">The events cannot be read.</p>");
            }
            self.main.push_str("</div>");
        }
        self.main.push_str("</div>\n");
    }

    /// Writes the turns of both episodes, the same number in the same row.
    fn rows(&mut self, id: &str, sides: &[Side<'_>; 2]) {
        let all = [sides[0].turns(), sides[1].turns()];
        let plans = [0, 1].map(|at| plan_within(&all[at], self.budget));
        let last = all[0].len().max(all[1].len());
        let is_shown =
            |at: usize, row: usize| row < all[at].len() && plans[at].shows(row, all[at].len());
        let different = first_difference(&all);
        let mut hidden: Option<usize> = None;
        for row in 0..last {
            if !is_shown(0, row) && !is_shown(1, row) {
                hidden.get_or_insert(row);
                continue;
            }
            self.not_shown(hidden.take(), row);
            let mark = match different {
                Some(at) if at == row => "<p class=\"differs\">First different turn</p>",
                _ => "",
            };
            let _ =
                write!(self.main, "{mark}<div class=\"pair turn\" id=\"{id}-turn-{}\">", row + 1);
            for at in [0, 1] {
                match all[at].get(row) {
                    Some(turn) if is_shown(at, row) => {
                        let room = sides[at].room(plans[at].room);
                        turn_of(&mut self.main, row, turn, &sides[at], room, &mut self.gallery);
                    }
                    Some(_) => self.main.push_str("<p class=\"gone\">This turn is not shown.</p>"),
                    None if row == all[at].len() && sides[at].recorded => {
                        let turns = counted(row, "turn");
                        let _ = write!(self.main, "<p class=\"gone\">Ended after {turns}.</p>");
                    }
                    None => self.main.push_str("<p class=\"gone\"></p>"),
                }
            }
            self.main.push_str("</div>\n");
        }
        self.not_shown(hidden, last);
    }

    fn not_shown(&mut self, from: Option<usize>, to: usize) {
        if let Some(from) = from {
            let _ = writeln!(
                self.main,
                "<p class=\"notice\">Turns {} to {} are not shown: the page would be too large.</p>",
                count((from + 1) as f64),
                count(to as f64)
            );
        }
    }
}

impl Plan {
    fn shows(&self, row: usize, all: usize) -> bool {
        row < self.head || row >= all - self.tail
    }
}

/// `set / problem`.
pub(super) fn title(pair: &EpisodePair) -> String {
    format!("{} / {}", excerpt(&pair.set, NAME), excerpt(&pair.records[0].id, NAME))
}

fn has_same_prompt(sides: &[Side<'_>; 2]) -> bool {
    let messages = |at: usize| sides[at].trajectory.metadata.get("messages");
    messages(0) == messages(1)
}

/// The first turn whose text or calls differ, unless it is the first one anyway.
pub(super) fn first_difference(all: &[Vec<Turn<'_>>; 2]) -> Option<usize> {
    let same = |(a, b): &(&Turn<'_>, &Turn<'_>)| {
        a.steps.len() == b.steps.len()
            && a.steps
                .iter()
                .zip(b.steps)
                .all(|(a, b)| (&a.thought, &a.action) == (&b.thought, &b.action))
    };
    let alike = all[0].iter().zip(&all[1]).take_while(same).count();
    (alike > 0 && alike < all[0].len().max(all[1].len())).then_some(alike)
}

fn turn_of(
    out: &mut String,
    row: usize,
    turn: &Turn<'_>,
    side: &Side<'_>,
    room: Room<'_>,
    gallery: &mut Gallery,
) {
    let facts = turn.steps.first().map(call_facts).unwrap_or_default();
    let _ = writeln!(
        out,
        "<div class=\"side\"><h3 class=\"turn-head\"><span class=\"turn-number\">Turn {}</span><small>{facts}</small></h3>",
        row + 1
    );
    turn_body(out, turn, (&side.notices, &side.pictures), true, room, gallery);
    out.push_str("</div>");
}

fn facts_of(out: &mut String, record: &EpisodeRecord) {
    let class = match record.end.as_str() {
        "submitted" => "good",
        "infrastructure" => "bad",
        _ => "warn",
    };
    let tokens = |number: u64| count(number as f64);
    let facts = [
        ("Score", facts::score(record.score)),
        ("End", format!("<span class=\"badge badge-{class}\">{}</span>", isolated(&end(record)))),
        ("Turns", count(f64::from(record.turns))),
        ("Sampled tokens", tokens(record.response_tokens)),
        ("Tool output tokens", tokens(record.environment_tokens)),
        ("Time", time((record.seconds.clamp(0.0, 1e12) * 1000.0) as u64)),
    ];
    out.push_str("<dl class=\"facts\">");
    for (name, value) in facts {
        let _ = write!(out, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    }
    out.push_str("</dl>\n");
}

/// How an episode ended, in words.
pub(super) fn end(record: &EpisodeRecord) -> String {
    match record.end.as_str() {
        "max_turns" => "turn limit".to_owned(),
        "truncated" => "token limit".to_owned(),
        "timeout" => "time limit".to_owned(),
        "no_calls" => "no tool calls".to_owned(),
        other => excerpt(other, 60),
    }
}
