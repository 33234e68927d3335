//! Which attempts a plan holds, in which order, and with which seeds.

use attempt::LimitSettings;
use model::Sampling;
use serde_json::json;

use super::*;

pub(crate) fn problem(id: &str, repeats: u32) -> Problem {
    let row = json!({"id": id, "problem_statement": "?", "ground_truth": "1"});
    Problem { repeats, ..Problem::from_row(row).unwrap() }
}

/// The problems of task math.
pub(crate) fn rows(problems: Vec<Problem>) -> TaskRows {
    TaskRows {
        task: Arc::new(Task::builtin("math").unwrap()),
        problems: problems.into_iter().map(Arc::new).collect(),
        rows_sha256: "x".into(),
    }
}

pub(crate) fn request(limit: Option<usize>, repeats: u32) -> ProblemRequest {
    let selection = Selection { limit, ..Selection::default() };
    ProblemRequest { tasks: vec!["math".into()], selection, repeats }
}

pub(crate) fn plan(problems: Vec<Problem>, repeats: u32) -> Plan {
    let settings = Settings {
        limits: LimitSettings { tokens_per_call: 1, plain_tokens: 1, ..LimitSettings::default() },
        sampling: Sampling { seed: Some(1), ..Sampling::default() },
        ..Settings::default()
    };
    let tasks = vec![rows(problems).select(&[request(None, repeats)])];
    Plan { tasks, modes: vec![Mode::Llm, Mode::Sandbox], settings }
}

#[test]
fn the_modes_of_a_problem_stand_side_by_side() {
    let plan = plan(vec![problem("a", 1), problem("b", 2)], 1);
    let planned = plan.attempts(&plan.modes).map(|planned| planned.key);
    let keys: Vec<_> = planned.map(|key| (key.id, key.repeat, key.mode)).collect();
    let both =
        |id: &str, repeat| [Mode::Llm, Mode::Sandbox].map(|mode| (id.to_owned(), repeat, mode));
    assert_eq!(keys, [both("a", 0), both("b", 0), both("b", 1)].concat());
    assert_eq!(plan.tasks[0].attempts(), 3);
    let info = plan.tasks[0].info();
    assert_eq!((info.repeats, info.attempts), (2, 3));
}

#[test]
fn every_attempt_has_a_seed_of_its_own_and_keeps_it() {
    let plan = plan(vec![problem("a", 1), problem("b", 1)], 3);
    let seeds = || -> BTreeSet<u64> {
        plan.attempts(&plan.modes).map(|planned| plan.seed(&planned.key).unwrap()).collect()
    };
    assert_eq!(seeds().len(), 12);
    assert!(seeds().iter().all(|seed| *seed < 1 << 31));
    assert_eq!(seeds(), seeds());
}

#[test]
fn problems_are_selected_by_place_then_id_then_number() {
    let all = ["a", "b", "c", "d"].map(|id| Arc::new(problem(id, 1)));
    let ids = |selection: Selection| {
        let chosen = select(&selection, &all, &mut BTreeSet::new())?;
        Ok(chosen.iter().map(|problem| problem.id.clone()).collect::<Vec<_>>().concat())
    };
    let (start, end) = (Some(1), Some(3));
    assert_eq!(ids(Selection::default()), Ok("abcd".into()));
    assert_eq!(ids(Selection { start, end, ..Selection::default() }), Ok("bc".into()));
    assert_eq!(ids(Selection { start, limit: Some(2), ..Selection::default() }), Ok("bc".into()));
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(ids(Selection { ids: named(&["d", "b"]), ..Selection::default() }), Ok("bd".into()));
    let missing = ids(Selection { ids: named(&["a"]), start, ..Selection::default() });
    assert_eq!(missing, Err(SelectionError::Unknown("\"a\"".into())));
    let none = ids(Selection { limit: Some(0), ..Selection::default() });
    assert_eq!(none, Err(SelectionError::Nothing { problems: 4 }));
}

#[test]
fn an_id_may_be_another_tasks() {
    let ids = ["a", "x"].map(str::to_owned);
    let mut missing = BTreeSet::from(ids.clone());
    let selection = Selection { ids: ids.to_vec(), limit: Some(1), ..Selection::default() };
    let of = |id: &str, missing: &mut BTreeSet<String>| {
        select(&selection, &[Arc::new(problem(id, 1))], missing)
    };
    assert_eq!(of("a", &mut missing).unwrap()[0].id, "a");
    assert_eq!(missing.iter().collect::<Vec<_>>(), ["x"]);
    assert_eq!(of("x", &mut missing).unwrap()[0].id, "x");
    assert!(missing.is_empty());
    assert_eq!(of("b", &mut missing), Err(SelectionError::Unknown("\"a\", \"x\"".into())));
}

#[test]
fn requests_add_up_to_the_problems_of_a_run() {
    let rows = rows(["a", "b", "c"].map(|id| problem(id, 1)).to_vec());
    let selected = |requests: &[ProblemRequest]| -> Vec<(String, u32)> {
        let problems = rows.select(requests).problems.into_iter();
        problems.map(|selected| (selected.problem.id.clone(), selected.repeats)).collect()
    };
    let pairs = |pairs: &[(&str, u32)]| -> Vec<(String, u32)> {
        pairs.iter().map(|(id, repeats)| ((*id).to_owned(), *repeats)).collect()
    };
    let (one_often, two) = (request(Some(1), 3), request(Some(2), 1));
    assert_eq!(selected(&[one_often.clone(), two]), pairs(&[("a", 3), ("b", 1)]));
    let ids = Selection { ids: vec!["c".into()], ..Selection::default() };
    let third = ProblemRequest { selection: ids, ..request(None, 2) };
    assert_eq!(selected(&[third, one_often]), pairs(&[("a", 3), ("c", 2)]));
    let of_another = ProblemRequest { tasks: vec!["chem".into()], ..request(None, 1) };
    assert_eq!(selected(&[of_another]), pairs(&[]));
}
