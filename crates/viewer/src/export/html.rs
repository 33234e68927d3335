//! One HTML file with the page and its data. The data is JSON in an element that browsers do not execute; the only script and the only
//! style of the page are named by their hashes.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Serialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::{
    Abilities, Code, Library, PageMode, PageOptions, RunQuery, RunRow, Scope, ViewError, assets,
    changes, compare,
    discover::Found,
    events::{EventIndex, EventsPage, ShownEvent, Turn, TurnsPage},
    files::{self, Places},
    formats::{self, Loaded},
    http::{Page, info_value},
    row::Kind,
    table::AttemptQuery,
};

/// About the largest file that is written, in bytes.
const MAX_BYTES: usize = 96 << 20;
/// Events of an episode that are part of a page about one, from its beginning and from its end.
const MAX_EVENTS: usize = 20_000;
/// The same of a page about many.
const MAX_EVENTS_OF_MANY: usize = 400;
/// Files up to this size are part of the page, in bytes, and all together.
const MAX_FILE: u64 = 2 << 20;
const MAX_FILES: usize = 24 << 20;
/// Turns whose changes are part of the page.
const MAX_CHANGES: usize = 500;
/// Groups of a training run that are part of the page, with all their members.
const MAX_GROUPS: usize = 20_000;

/// Collects what the page would ask a server for.
struct Data<'a> {
    page: &'a Page,
    responses: Map<String, Value>,
    bytes: usize,
    files: usize,
    events: usize,
}

impl Library {
    /// One HTML file about all runs, or about the only one.
    ///
    /// # Errors
    /// If there are none, or the page is not part of the program.
    pub fn export_all(
        self: &std::sync::Arc<Self>,
        options: PageOptions,
    ) -> Result<String, ViewError> {
        let all = RunQuery { limit: Some(usize::MAX), ..RunQuery::default() };
        let runs = self.runs(&all, &Scope::default()).runs;
        if runs.is_empty() {
            return Err(ViewError::new(Code::NotFound, "there is no run to export"));
        }
        let page = exported(self, options);
        let ids: Vec<String> = runs.into_iter().map(|run| run.id).collect();
        export(&page, &ids, None, &Scope::default())
    }
}

/// The page as its file sees it.
fn exported(library: &std::sync::Arc<Library>, options: PageOptions) -> Page {
    let options = PageOptions {
        mode: PageMode::Export,
        can: Abilities::default(),
        models: Vec::new(),
        ..options
    };
    Page { library: std::sync::Arc::clone(library), options: std::sync::Arc::new(options) }
}

/// One HTML file about a run, or one attempt of it.
pub(crate) fn of_run(
    page: &Page,
    run: &str,
    attempt: Option<&str>,
    scope: &Scope,
) -> Result<String, ViewError> {
    let page = exported(&page.library, (*page.options).clone());
    export(&page, &[run.to_owned()], attempt, scope)
}

fn export(
    page: &Page,
    runs: &[String],
    attempt: Option<&str>,
    scope: &Scope,
) -> Result<String, ViewError> {
    let mut data = Data { page, responses: Map::new(), bytes: 0, files: 0, events: MAX_EVENTS };
    data.add("page/api/info", &info_value(page))?;
    let library = &page.library;
    let mut rows = library.runs(&RunQuery { limit: Some(1000), ..RunQuery::default() }, scope);
    rows.runs.retain(|row| runs.contains(&row.id));
    (rows.total, rows.matched) = (rows.runs.len(), rows.runs.len());
    data.add("page/api/runs", &rows)?;
    if attempt.is_none() {
        data.comparisons(&rows.runs, scope)?;
    }
    let single = rows.runs.len() == 1;
    for row in &rows.runs {
        let whole = single || data.bytes < MAX_BYTES / 2;
        data.run(&row.id, attempt, whole, scope)?;
    }
    let start = match rows.runs.as_slice() {
        [row] => match attempt.or(row.attempt.as_deref()) {
            Some(only) => format!("#/runs/{}/attempts/{}", row.id, encoded(only)),
            None => format!("#/runs/{}", row.id),
        },
        _ => "#/".to_owned(),
    };
    let data = json!({ "v": 1, "start": start, "responses": data.responses });
    let title = match rows.runs.as_slice() {
        [row] => row.name.clone(),
        _ => page.options.title.clone(),
    };
    document(&title, &data)
}

impl Data<'_> {
    fn add(&mut self, address: &str, value: &impl Serialize) -> Result<(), ViewError> {
        let value = serde_json::to_value(value)
            .map_err(|error| ViewError::new(Code::Internal, error.to_string()))?;
        self.bytes += serde_json::to_string(&value).map_or(0, |text| text.len());
        self.responses.insert(address.to_owned(), value);
        Ok(())
    }

    fn run(
        &mut self,
        id: &str,
        only: Option<&str>,
        whole: bool,
        scope: &Scope,
    ) -> Result<(), ViewError> {
        let library = &self.page.library;
        let (found, loaded) = library.run(id)?;
        let detail = library.run_detail(id, &self.page.options, scope)?;
        let at = format!("page/api/runs/{}", encoded(id));
        self.add(&at, &detail)?;
        let all = AttemptQuery::default();
        let mut rows = json!(loaded.table.page_within(&all, scope, usize::MAX));
        if let Some(only) = only
            && let Some(list) = rows["attempts"].as_array_mut()
        {
            list.retain(|row| row["id"] == only);
        }
        self.add(&format!("{at}/attempts"), &rows)?;
        if found.format.kind() == Kind::Training && only.is_none() {
            self.training(&at, &found, &loaded, scope)?;
        }
        let (selected, _) = loaded.table.select(&AttemptQuery::default(), scope);
        if selected.len() > 1 && only.is_none() {
            self.events = MAX_EVENTS_OF_MANY;
        }
        for attempt in selected.into_iter().filter_map(|at| loaded.table.attempts.get(at)) {
            let wanted = only.is_none_or(|only| only == attempt.row.id);
            if wanted && whole && self.bytes < MAX_BYTES {
                self.attempt(id, &attempt.row.id, scope)?;
            }
        }
        Ok(())
    }

    /// The curves of a training run, its steps and their groups.
    fn training(
        &mut self,
        at: &str,
        found: &Found,
        loaded: &Loaded,
        scope: &Scope,
    ) -> Result<(), ViewError> {
        // A run that ended early has none.
        if let Ok(metrics) = compare::metrics(&found.path, None) {
            self.add(&format!("{at}/metrics"), &metrics)?;
        }
        let steps = formats::steps(&loaded.table, scope, 0, usize::MAX);
        self.add(&format!("{at}/steps"), &steps)?;
        let groups = formats::all_groups(&loaded.table, scope, MAX_GROUPS);
        self.add(&format!("{at}/groups"), &groups)
    }

    /// What the runs are when they are compared.
    fn comparisons(&mut self, rows: &[RunRow], scope: &Scope) -> Result<(), ViewError> {
        let benchmarks = rows.iter().filter(|row| row.kind == Kind::Benchmark);
        let ids: Vec<String> = benchmarks.map(|row| row.id.clone()).collect();
        let Some(all) = self.page.library.all_comparisons(&ids, scope)? else { return Ok(()) };
        self.add("page/api/compare/problems", &all.problems)?;
        for (runs, comparison) in all.runs {
            self.add(&format!("page/api/compare?runs={runs}"), &comparison)?;
        }
        Ok(())
    }

    fn attempt(&mut self, run: &str, id: &str, scope: &Scope) -> Result<(), ViewError> {
        let library = &self.page.library;
        let (found, loaded) = library.run(run)?;
        let (_, attempt) = loaded.table.find(id, scope)?;
        let detail = library.attempt_detail(run, id, &self.page.options, scope)?;
        let at = format!("page/api/runs/{}/attempts/{}", encoded(run), encoded(id));
        self.add(&at, &detail)?;
        let Ok(index) = library.events(run, attempt) else { return Ok(()) };
        let room = MAX_BYTES.saturating_sub(self.bytes) / 2;
        let kept = ends(&index, self.events, room)?;
        self.add(&format!("{at}/events"), &kept.events())?;
        self.add(&format!("{at}/turns"), &kept.turns(index.turns()))?;
        self.add(&format!("{at}/changes"), &changes::all(&index))?;
        let changed = index.turns().iter().filter(|turn| turn.files > 0 && kept.has(turn.event));
        for turn in changed.take(MAX_CHANGES) {
            let Ok(changes) = changes::of_turn(&index, turn.turn, Some(turn.event)) else {
                continue;
            };
            let mut address = format!("{at}/turns/{}/changes", turn.turn);
            if turn.dropped {
                address.push_str(&format!("?event={}", turn.event));
            }
            self.add(&address, &changes)?;
        }
        self.add_files(&at, &Places::of(&found, attempt))
    }

    fn add_files(&mut self, at: &str, places: &Places) -> Result<(), ViewError> {
        let listed = files::list(places);
        for (area, list) in [("input", &listed.input), ("output", &listed.output)] {
            for file in list {
                if self.files + file.size as usize > MAX_FILES {
                    break;
                }
                let Ok(opened) = places.open(area, &file.path) else { continue };
                let Some(bytes) = files::whole(opened, MAX_FILE) else { continue };
                self.files += bytes.len();
                let path: Vec<String> = file.path.split('/').map(encoded).collect();
                let data = BASE64_STANDARD.encode(bytes);
                let value = json!({ "data": data, "type": file.media_type });
                self.add(&format!("{at}/files/{area}/{}", path.join("/")), &value)?;
            }
        }
        self.add(&format!("{at}/files"), &listed)
    }
}

/// The events at both ends of an episode.
struct Ends {
    first: EventsPage,
    last: Vec<ShownEvent>,
    /// The numbers of the events between them.
    omitted: Option<(u64, u64)>,
}

/// At most so many events, half of them and about so many bytes from each end. Turns are kept or left out as a whole.
fn ends(index: &EventIndex, most: usize, room: usize) -> Result<Ends, ViewError> {
    let (total, half) = (index.total(), most / 2);
    let limit = if total <= most as u64 { most } else { half };
    let mut first = index.page_within(1, limit, room)?;
    let shown = first.events.len() as u64;
    let mut last = Vec::new();
    let mut bytes = 0;
    for n in (shown + 1..=total).rev().take(half) {
        let event = index.shown(n)?;
        bytes += event.event.to_string().len();
        if bytes > room {
            break;
        }
        last.push(event);
    }
    last.reverse();
    let reaches = |last: &[ShownEvent]| last.first().map_or(total, |event| event.n - 1);
    if shown == reaches(&last) {
        return Ok(Ends { first, last, omitted: None });
    }
    let begins = |n: u64| index.turns().binary_search_by_key(&n, |turn| turn.event).is_ok();
    let whole = (1..=shown + 1).rev().find(|n| begins(*n)).map_or(shown, |n| n - 1);
    first.events.truncate(usize::try_from(whole).unwrap_or(usize::MAX));
    let at = last.iter().position(|event| begins(event.n)).unwrap_or(last.len());
    last.drain(..at);
    let omitted = Some((whole + 1, reaches(&last)));
    Ok(Ends { first, last, omitted })
}

impl Ends {
    fn has(&self, n: u64) -> bool {
        self.omitted.is_none_or(|(from, to)| n < from || n > to)
    }

    fn events(&self) -> Value {
        let mut events = json!(self.first);
        if let Some(list) = events["events"].as_array_mut() {
            list.extend(self.last.iter().map(|event| json!(event)));
        }
        events
    }

    /// The turns whose events are kept, and how many are missing before which of them.
    fn turns(&self, all: &[Turn]) -> Value {
        let kept: Vec<&Turn> = all.iter().filter(|turn| self.has(turn.event)).collect();
        let mut page = json!(TurnsPage::of(all, 0, 1));
        page["turns"] = json!(kept);
        if let Some((from, _)) = self.omitted {
            let at = kept.iter().take_while(|turn| turn.event < from).count();
            page["omitted"] = json!({ "at": at, "turns": all.len() - kept.len(), "event": from });
        }
        page
    }
}

/// A part of an address, as `encodeURIComponent` writes it.
fn encoded(text: &str) -> String {
    let mut part = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => part.push(byte.into()),
            b'-' | b'_' | b'.' | b'!' | b'~' | b'*' | b'\'' | b'(' | b')' => part.push(byte.into()),
            other => part.push_str(&format!("%{other:02X}")),
        }
    }
    part
}

fn document(title: &str, data: &Value) -> Result<String, ViewError> {
    let missing = || ViewError::new(Code::Internal, "this program was built without its page");
    let script = assets::text("single.js").ok_or_else(missing)?;
    let style = assets::text("single.css").ok_or_else(missing)?;
    // In a script these occur in texts and patterns only, where the escape means the same.
    let script = script.replace("<!--", "\\x3C!--").replace("<script", "\\x3Cscript");
    let ends = |text: &str, tag: &str| text.to_ascii_lowercase().contains(tag);
    if ends(&script, "</script") || ends(&script, "<script") || ends(style, "</style") {
        return Err(ViewError::new(Code::Internal, "the page's script cannot be part of a file"));
    }
    let hash = |text: &str| BASE64_STANDARD.encode(Sha256::digest(text));
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; img-src data: blob:; media-src data: blob:; \
         frame-src blob:; base-uri 'none'; form-action 'none'",
        hash(&script),
        hash(style)
    );
    let json = data.to_string();
    // Nothing in a JSON text begins a tag or a comment; whoever parses it gets the same value.
    let json = json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    let json = trajectory::escape_hidden(&json);
    let title = title.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n<title>{title}</title>\n\
         <style>{style}</style>\n</head>\n<body>\n<div id=\"app\"></div>\n\
         <script type=\"application/json\" id=\"page-data\">{json}</script>\n\
         <script>{script}</script>\n</body>\n</html>\n"
    ))
}
