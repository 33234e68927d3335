//! A model that follows a script and remembers what it was asked. Talks to nobody.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use model::{Delta, Error, Listener, Model, Reply, Request, Sampling};
use serde_json::Value;
use trajectory::{Arguments, Assistant, Message, ToolCall};

use crate::{Call, Turn};

/// A model that says what a test wrote down.
pub struct Scripted {
    name: String,
    delay: Duration,
    script: Script,
    state: Mutex<State>,
}

/// One line of a script.
#[derive(Debug)]
pub enum Line {
    /// The model says this.
    Says(Turn),
    /// It gives exactly this reply.
    Replies(Box<Reply>),
    /// The call fails.
    Fails(Error),
    /// It never answers.
    Hangs,
}

/// What a scripted model was asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// The conversation.
    pub messages: Vec<Message>,
    /// How many tools it was offered.
    pub tools: usize,
    /// How it was to choose its words.
    pub sampling: Sampling,
    /// The most tokens it might write.
    pub max_tokens: u64,
}

enum Script {
    Lines,
    Closure(Box<dyn Fn(&Request<'_>) -> Line + Send + Sync>),
}

#[derive(Default)]
struct State {
    lines: VecDeque<Line>,
    told: usize,
    called: usize,
    asked: Vec<Asked>,
}

impl Scripted {
    /// A model that says these lines, one for each request.
    pub fn new<L: Into<Line>>(lines: impl IntoIterator<Item = L>) -> Self {
        let lines = lines.into_iter().map(Into::into).collect();
        Self::made(Script::Lines, State { lines, ..State::default() })
    }

    /// A model that answers each request by itself, so that it can serve many conversations at once.
    pub fn answering<L: Into<Line>>(
        answer: impl Fn(&Request<'_>) -> L + Send + Sync + 'static,
    ) -> Self {
        let answer = move |request: &Request<'_>| answer(request).into();
        Self::made(Script::Closure(Box::new(answer)), State::default())
    }

    /// The same with one more line at the end. Lines come before what a closure answers.
    pub fn then(self, line: impl Into<Line>) -> Self {
        self.push(line);
        self
    }

    /// The same under this name.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The same, thinking this long before every reply.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// One more line at the end.
    pub fn push(&self, line: impl Into<Line>) {
        self.state().lines.push_back(line.into());
    }

    /// Every request so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.state().asked.clone()
    }

    /// How many lines were not said.
    pub fn left(&self) -> usize {
        self.state().lines.len()
    }

    fn made(script: Script, state: State) -> Self {
        Self { name: "scripted".into(), delay: Duration::ZERO, script, state: Mutex::new(state) }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // A test that panicked holds no half-made change: every change is one push or pop.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self, request: &Request<'_>) -> Line {
        let mut state = self.state();
        state.asked.push(Asked {
            messages: request.messages.to_vec(),
            tools: request.tools.len(),
            sampling: request.sampling.clone(),
            max_tokens: request.max_tokens,
        });
        if let Some(line) = state.lines.pop_front() {
            state.told += 1;
            return line;
        }
        let told = state.told;
        drop(state);
        match &self.script {
            Script::Lines => Line::Fails(Error::Refused {
                // As the mock server has it.
                status: 410,
                message: format!("the script has no reply left; it had {told}"),
            }),
            Script::Closure(answer) => answer(request),
        }
    }

    fn reply(&self, turn: &Turn, request: &Request<'_>) -> Reply {
        let mut state = self.state();
        let calls = turn.calls.iter().map(|call| {
            state.called += 1;
            ToolCall {
                id: call.id.clone().unwrap_or_else(|| format!("call_{}", state.called)),
                name: call.name.clone(),
                arguments: call.understood(),
            }
        });
        Reply {
            message: Assistant {
                text: turn.text.clone(),
                reasoning: turn.reasoning.clone(),
                calls: calls.collect(),
                ..Assistant::default()
            },
            stop: turn.why(),
            usage: turn.cost(request.messages.iter().map(Message::size).sum()),
            from_cache: false,
        }
    }
}

impl Default for Scripted {
    /// A model with nothing to say; see [`Scripted::then`].
    fn default() -> Self {
        Self::new([] as [Line; 0])
    }
}

impl Model for Scripted {
    fn name(&self) -> &str {
        &self.name
    }

    async fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Reply, Error> {
        let line = self.next(request);
        pause(self.delay).await;
        match line {
            Line::Says(turn) => {
                pause(turn.delay).await;
                tell(&turn, listener);
                Ok(self.reply(&turn, request))
            }
            Line::Replies(reply) => {
                tell(&turn(&reply.message), listener);
                Ok(*reply)
            }
            Line::Fails(error) => Err(error),
            Line::Hangs => std::future::pending().await,
        }
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted").field("name", &self.name).finish_non_exhaustive()
    }
}

impl From<Turn> for Line {
    fn from(turn: Turn) -> Self {
        Self::Says(turn)
    }
}

impl From<Reply> for Line {
    fn from(reply: Reply) -> Self {
        Self::Replies(Box::new(reply))
    }
}

impl From<Error> for Line {
    fn from(error: Error) -> Self {
        Self::Fails(error)
    }
}

/// What was said, to be told piece by piece.
fn turn(message: &Assistant) -> Turn {
    let calls = message.calls.iter().map(|call| match &call.arguments {
        Arguments::Object(map) => Call::new(&call.name, Value::Object(map.clone())),
        Arguments::Malformed { malformed, .. } => Call::raw(&call.name, malformed),
    });
    crate::calls(calls).text(&message.text).reasoning(&message.reasoning)
}

async fn pause(delay: Duration) {
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
}

fn tell(turn: &Turn, listener: &dyn Listener) {
    turn.cut(&turn.reasoning).for_each(|piece| listener.hear(Delta::Reasoning(piece)));
    turn.cut(&turn.text).for_each(|piece| listener.hear(Delta::Text(piece)));
    for call in &turn.calls {
        listener.hear(Delta::Call(&call.name));
        turn.cut(&call.arguments).for_each(|piece| listener.hear(Delta::Arguments(piece)));
    }
}
