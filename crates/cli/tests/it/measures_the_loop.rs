//! Many episodes at once against a server that answers at once: all of them end as they should.

use testkit::{Conversation, Keep, MockServer};

use crate::support::Home;

#[test]
fn many_episodes_run_at_once() {
    let Some(home) = Home::with_sandboxes() else { return };
    let conversation = Conversation { turns: 4, ..Conversation::default() };
    let server =
        MockServer::answering_and(Keep::Counts, move |asked| conversation.answer(asked)).unwrap();
    let url = server.base_url();
    let figures = home.json(["perf", "agent", "--base-url", &url, "--episodes", "24", "--json"]);
    assert_eq!((&figures["failures"], &figures["turns"]), (&0.into(), &96.into()), "{figures}");
    assert!(figures["cpu_ms_per_turn"].as_f64().unwrap() > 0.0, "{figures}");
    assert_eq!(server.count(), 96);
    assert_eq!(home.traces().len(), 0);
}
