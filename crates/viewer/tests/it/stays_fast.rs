//! Long episodes and large runs open at once. Bounds are those of a slow machine without optimization, in time of its
//! processors, which other programs do not lengthen.

use std::{
    fs,
    io::{BufWriter, Write},
    time::Duration,
};

use serde_json::json;

use crate::support::{Served, attempt, bash, observed, responded, started};

#[tokio::test]
async fn an_episode_of_300_000_events_opens() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    fs::create_dir_all(&run).unwrap();
    let line = |event| serde_json::to_string(&trajectory::Line::new(1, event)).unwrap();
    let mut file = BufWriter::new(fs::File::create(run.join("events.jsonl")).unwrap());
    writeln!(file, "{}", line(started("t"))).unwrap();
    let reply = line(responded(7, "I look at the file.", vec![bash("sed -n 1,80p src/main.rs")]));
    let result = line(observed(7, "execute_bash", &"some output of a command\n".repeat(10)));
    for turn in 1..=150_000 {
        let number = format!("\"turn\":{turn}");
        writeln!(file, "{}", reply.replace("\"turn\":7", &number)).unwrap();
        writeln!(file, "{}", result.replace("\"turn\":7", &number)).unwrap();
    }
    file.flush().unwrap();
    drop(file);
    let served = Served::at(dir.path());
    let begun = busy();
    let at = format!("runs/{}/attempts/0", served.only_run().await);
    let detail = served.get(&at).await;
    assert_eq!(detail["events"]["total"], 300_001);
    let first = busy() - begun;
    let begun = busy();
    for from in [1_u64, 150_000, 299_900] {
        let page = served.get(&format!("{at}/events?from={from}&limit=200")).await;
        assert_eq!(page["events"][0]["n"], from);
    }
    let turns = served.get(&format!("{at}/turns?from=149999")).await;
    assert_eq!((&turns["total"], &turns["turns"][0]["turn"]), (&json!(150_000), &json!(150_000)));
    let later = busy() - begun;
    println!("opened in {first:?}, then four pages in {later:?}");
    assert!(first < Duration::from_secs(20), "{first:?}");
    assert!(later < Duration::from_secs(4), "{later:?}");
}

#[tokio::test]
async fn a_run_of_10_000_attempts_opens() {
    let dir = tempfile::tempdir().unwrap();
    let attempts = dir.path().join("attempts/math/sandbox");
    fs::create_dir_all(&attempts).unwrap();
    let record = serde_json::to_string(&attempt(777, Some(1.0))).unwrap();
    for problem in 0..10_000 {
        let record = record.replace("\"p777\"", &format!("\"p{problem}\""));
        fs::write(attempts.join(format!("p{problem}.0.json")), record).unwrap();
    }
    let served = Served::at(dir.path());
    let begun = busy();
    let at = format!("runs/{}/attempts", served.only_run().await);
    let page = served.get(&format!("{at}?limit=100")).await;
    assert_eq!((&page["total"], &page["attempts"][99]["problem"]), (&json!(10_000), &json!("p99")));
    let first = busy() - begun;
    let begun = busy();
    assert_eq!(served.get(&format!("{at}?q=p9999")).await["matched"], 1);
    assert_eq!(
        served.get(&format!("{at}?sort=started&order=desc&offset=9900")).await["attempts"]
            .as_array()
            .unwrap()
            .len(),
        100
    );
    let later = busy() - begun;
    println!("opened in {first:?}, then two pages in {later:?}");
    assert!(first < Duration::from_secs(20), "{first:?}");
    assert!(later < Duration::from_secs(8), "{later:?}");
}

/// The time of processors that this process has used.
fn busy() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let ticks = fields.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}
