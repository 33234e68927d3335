//! A server is measured: it creates every sandbox, runs every command, and leaves nothing.

use crate::support::Home;

#[test]
fn a_server_is_measured_and_ended() {
    let Some(home) = Home::with_sandboxes() else { return };
    let args = ["--count", "20", "--commands", "5", "--streams", "6", "--json"];
    let model = ["--chats", "8", "--events", "30", "--episodes", "20"];
    let figures = home.json(["perf", "serve"].into_iter().chain(args).chain(model));
    let (create, streams) = (&figures["create"], &figures["streams"]);
    assert_eq!((&create["count"], &create["errors"]), (&20.into(), &0.into()), "{figures}");
    assert_eq!((&streams["count"], &streams["errors"]), (&6.into(), &0.into()), "{figures}");
    let positive = |value: &serde_json::Value| value.as_f64().is_some_and(|value| value > 0.0);
    assert!(positive(&create["per_second"]) && positive(&figures["exec_ratio"]), "{figures}");
    assert_eq!(figures["in_process_create"]["errors"], 0, "{figures}");
    // Sandboxes that have ended leave nothing in the server's memory that adds up.
    assert_eq!(figures["memory"]["count"], 60, "{figures}");
    assert!(figures["memory"]["ratio"].as_f64().is_some_and(|ratio| ratio < 1.2), "{figures}");
    for (part, count) in [("chats", 8), ("events", 30), ("episodes", 20)] {
        let part = &figures[part];
        assert_eq!((&part["count"], &part["errors"]), (&count.into(), &0.into()), "{figures}");
    }
    assert_eq!(home.traces().len(), 0);
}
