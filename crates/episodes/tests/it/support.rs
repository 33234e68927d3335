//! Episodes of a scripted model, in a directory of their own.

use std::{path::Path, sync::Arc, time::Duration};

use lis_episodes::{
    Episode, EpisodeOptions, EpisodeRequest, Episodes, EventReader, NumberedEvent, ServedModel,
    Store, Task,
};
use model::{Request, SharedModel};
use sandbox_native::NativeRuntime;
use sandbox_testkit::Spawner;
use testkit::{ScriptedModel, Step};
use trajectory::{Event, Message};

const BOUND: Duration = Duration::from_secs(60);

/// A directory, a runtime, and the episodes of a process.
pub(crate) struct Fixture {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) runtime: Arc<NativeRuntime>,
}

pub(crate) fn with_episodes(test: impl AsyncFnOnce(&Fixture)) {
    let spawner = Spawner::Example("lis-episodes-spawner");
    sandbox_testkit::with_runtime(spawner, BOUND, async |runtime| {
        let dir = tempfile::tempdir().unwrap();
        let fixture = Fixture { dir, runtime: Arc::new(runtime) };
        test(&fixture).await;
        let left = sandbox::Runtime::list(&*fixture.runtime).await.unwrap();
        assert!(left.is_empty(), "{left:?}");
    });
}

impl Fixture {
    /// What a server has that uses the directory. Only one at a time can.
    pub(crate) fn open(&self, model: ScriptedModel) -> Episodes<NativeRuntime> {
        let store = Arc::new(Store::open(self.dir.path()).unwrap());
        let models = vec![ServedModel::new(SharedModel::new(model))];
        Episodes::new(Arc::clone(&self.runtime), EpisodeOptions::new(store, models))
    }
}

/// A model that computes each response from the number of its turn, from 1, so that it serves any number of episodes.
pub(crate) fn by_turn<S: Into<Step>>(
    answer: impl Fn(usize) -> S + Send + Sync + 'static,
) -> ScriptedModel {
    ScriptedModel::answering(move |request: &Request<'_>| {
        let said = request.messages.iter().filter(|m| matches!(m, Message::Assistant(_)));
        answer(said.count() + 1)
    })
}

pub(crate) fn task(text: &str) -> EpisodeRequest {
    EpisodeRequest {
        task: Task::Text(text.into()),
        owner: "me".into(),
        ..EpisodeRequest::default()
    }
}

/// All events up to the end.
pub(crate) async fn all(reader: &mut EventReader) -> Vec<NumberedEvent> {
    let mut events = Vec::new();
    while let Some(event) = reader.next().await.unwrap() {
        events.push(event);
    }
    events
}

/// Waits until the episode has completed this turn.
pub(crate) async fn after_turn(episode: &Episode, turn: u32) {
    let mut reader = episode.events_from(0).await.unwrap();
    while let Some(event) = reader.next().await.unwrap() {
        if matches!(&event.line().unwrap().event, Event::Observed(observed) if observed.turn == turn)
        {
            return;
        }
    }
    panic!("the episode ended before turn {turn}");
}

/// A file that the episode left.
pub(crate) fn left(episode: &Episode, name: &str) -> String {
    std::fs::read_to_string(episode.files_dir().join(Path::new(name))).unwrap()
}
