//! Settings of the systems side by side: what differs, and what is the same.

use std::collections::BTreeMap;

use super::systems::Group;
use crate::{
    Source,
    data::{SettingRow, SettingsReport},
    settings::{Role, settings},
};

/// Settings that differ at most; runs that differ in more have nothing in common.
const MOST: usize = 200;

/// A setting and its value in each system.
struct Row {
    role: Role,
    values: Vec<Option<String>>,
}

/// Compares the settings of systems. A system of several runs has the values of all of them.
pub(super) fn compare(groups: &[Group], sources: &[Source]) -> SettingsReport {
    let mut rows: BTreeMap<(usize, String), Row> = BTreeMap::new();
    for (system, group) in groups.iter().enumerate() {
        for run in group.runs.iter().filter(|run| sources[**run].has_run_file) {
            for setting in settings(&sources[*run].run) {
                let empty = || Row { role: setting.role, values: vec![None; groups.len()] };
                let row = rows.entry((setting.rank, setting.name)).or_insert_with(empty);
                add(&mut row.values[system], &setting.value);
            }
        }
    }
    let mut report = SettingsReport::default();
    for ((_, name), Row { role, values }) in rows {
        match values.iter().all(|value| *value == values[0]) {
            false => report.differing.push(SettingRow { name, values }),
            true if role == Role::Digest => {}
            true => report.same.extend(values[0].clone().map(|value| (name, value))),
        }
    }
    report.differing.truncate(MOST);
    report
}

/// Adds a value to those of other runs of the system.
fn add(values: &mut Option<String>, value: &str) {
    match values {
        None => *values = Some(value.to_owned()),
        Some(known) if known.split(" / ").any(|known| known == value) => {}
        Some(known) if known.len() > 1000 => {}
        Some(known) => *known = format!("{known} / {value}"),
    }
}
