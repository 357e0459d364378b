//! Breaks what is simulated on purpose, so that a test sees each checker ring.
//!
//! The harness does it: it spoils answers on their way from the proxy to the client, sends calls
//! twice, turns off what looks at answers, or leaves something behind. What the checkers then see is a
//! proxy with that defect. Nothing of it is in the code that is simulated.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use wellhead_jsonrpc::raw;

/// Of what connections are told, so much is spoilt where not all is.
const SPOILS_ONE_IN: usize = 5;

/// What is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// Ids come back under another name.
    LoseIds,
    /// Answers come after the deadline of their calls.
    AnswerLate,
    /// Every result is told as an error.
    FailReads,
    /// Errors name no upstream.
    NameNone,
    /// Every exchange goes out four times.
    SendAgain,
    /// A digit more in each number.
    ChangeResults,
    /// Searches for logs find nothing.
    FindNoLogs,
    /// The first answer to a call is told to all later ones, for ever.
    KeepForEver,
    /// The height is that of the first block now and then.
    FallBack,
    /// No answer is looked at.
    LookAway,
    /// A key is shown in the status.
    ShowKey,
    /// A task never ends.
    LeaveTask,
    /// Each answer comes a second later than it could.
    LetWait,
    /// Nothing bounds what one request costs upstreams.
    SpendFreely,
    /// Every exchange of the loop that announces blocks goes out four times.
    AnnounceAgain,
    /// One head in a few is not told.
    SkipHeads,
    /// One log in a few is not told.
    LoseLogs,
    /// One notification in a few comes after the next one.
    SwapNotices,
    /// Blocks cannot be read.
    ForgetBlocks,
    /// Notifications come a minute late.
    TellLate,
    /// Every second connection is told each thing a moment later.
    TellInTurns,
    /// A connection is kept when its client has left.
    KeepSession,
    /// Notifications have an id.
    NumberNotices,
    /// Connections are told nothing any more.
    FallSilent,
    /// Of what some polls of filters tell the first is missing.
    LoseChanges,
    /// One pending transaction in a few is told twice.
    RepeatPending,
    /// One pending transaction in a few is not told.
    LosePending,
}

/// What is played.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Story {
    /// Anything.
    Usual,
    /// An upstream that hides logs.
    Silence,
    /// One address that takes all it can get.
    Crowd,
    /// Clients that subscribe.
    Subscribers,
}

impl Sabotage {
    /// Each of them, with the seed that gives it an occasion (an outage, a budget, a lie), and the
    /// checkers that have to ring there.
    pub const ALL: [(Self, u64, &'static [&'static str]); 27] = [
        (Self::LoseIds, 0, &["answers"]),
        (Self::AnswerLate, 0, &["deadline"]),
        (Self::FailReads, 0, &["reads"]),
        (Self::NameNone, 1, &["recovery"]),
        (Self::SendAgain, 0, &["writes", "budget", "limits"]),
        (Self::ChangeResults, 5, &["content", "quorum"]),
        (Self::FindNoLogs, 0, &["logs"]),
        (Self::KeepForEver, 2, &["kept"]),
        (Self::FallBack, 0, &["latest"]),
        (Self::LookAway, 16, &["void"]),
        (Self::ShowKey, 0, &["secrets"]),
        (Self::LeaveTask, 0, &["leaks"]),
        (Self::LetWait, 0, &["share"]),
        (Self::SpendFreely, 19, &["amplification"]),
        (Self::AnnounceAgain, 0, &["spend"]),
        (Self::SkipHeads, 0, &["heads_linked"]),
        (Self::LoseLogs, 0, &["logs_exact"]),
        (Self::SwapNotices, 0, &["order"]),
        (Self::ForgetBlocks, 0, &["consistent"]),
        (Self::TellLate, 1, &["fresh"]),
        (Self::TellInTurns, 0, &["isolation"]),
        (Self::KeepSession, 0, &["no_leak"]),
        (Self::NumberNotices, 0, &["protocol"]),
        (Self::FallSilent, 0, &["alive"]),
        (Self::LoseChanges, 0, &["filters_exact"]),
        (Self::RepeatPending, 0, &["pending_once"]),
        (Self::LosePending, 0, &["pending_once"]),
    ];

    /// The story in which it does harm.
    pub fn story(self) -> Story {
        match self {
            Self::FindNoLogs => Story::Silence,
            Self::LetWait | Self::SpendFreely => Story::Crowd,
            Self::AnnounceAgain
            | Self::SkipHeads
            | Self::LoseLogs
            | Self::SwapNotices
            | Self::ForgetBlocks
            | Self::TellLate
            | Self::TellInTurns
            | Self::KeepSession
            | Self::NumberNotices
            | Self::FallSilent
            | Self::LoseChanges
            | Self::RepeatPending
            | Self::LosePending => Story::Subscribers,
            _ => Story::Usual,
        }
    }
}

/// Spoils answers before a client has them.
#[derive(Debug, Default)]
pub struct Saboteur {
    sabotage: Option<Sabotage>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    heights: usize,
    /// Polls of filters that told something.
    polls: usize,
    /// By method and params: the result that was told first.
    first: HashMap<Vec<u8>, Vec<u8>>,
}

impl Saboteur {
    /// The sabotage that does this, or nothing.
    pub fn new(sabotage: Option<Sabotage>) -> Self {
        Self { sabotage, state: Mutex::default() }
    }

    /// What is broken.
    pub fn sabotage(&self) -> Option<Sabotage> {
        self.sabotage
    }

    /// How much later than the proxy's answer the client has it.
    pub(crate) fn delay(&self, total: Duration) -> Duration {
        match self.sabotage {
            Some(Sabotage::AnswerLate) => total + Duration::from_secs(1),
            Some(Sabotage::LetWait) => Duration::from_secs(1),
            _ => Duration::ZERO,
        }
    }

    /// The answer to `call`, and what it says the cache had, as the client sees them.
    pub(crate) fn spoil(
        &self,
        call: &[u8],
        body: Vec<u8>,
        cache: Option<&'static str>,
    ) -> (Vec<u8>, Option<&'static str>) {
        let method = raw::field(call, "method").and_then(raw::string).unwrap_or_default();
        let body = match self.sabotage {
            Some(Sabotage::LoseIds) => replaced(&body, "\"id\":", "\"ID\":"),
            Some(Sabotage::FailReads) => replaced(&body, "\"result\":", "\"error\":"),
            Some(Sabotage::NameNone) => replaced(&body, "up-", "them "),
            Some(Sabotage::ChangeResults) => replaced(&body, "\"result\":\"0x", "\"result\":\"0x1"),
            Some(Sabotage::ForgetBlocks) if method.starts_with("eth_getBlock") => {
                with_result(call, b"null")
            }
            Some(Sabotage::FindNoLogs) if method == "eth_getLogs" => with_result(call, b"[]"),
            Some(Sabotage::FallBack) if method == "eth_blockNumber" => {
                let mut state = self.state.lock();
                state.heights += 1;
                if state.heights.is_multiple_of(2) { with_result(call, b"\"0x1\"") } else { body }
            }
            Some(Sabotage::LoseChanges) if method == "eth_getFilterChanges" => {
                self.lose_change(call, body)
            }
            Some(Sabotage::KeepForEver) => return self.keep(call, body, cache),
            _ => body,
        };
        (body, cache)
    }

    /// The answer to a poll without what it tells first, of one in a few that tell something.
    fn lose_change(&self, call: &[u8], body: Vec<u8>) -> Vec<u8> {
        let result = raw::field(&body, "result").map(serde_json::from_slice::<Vec<Value>>);
        let Some(Ok(mut changes)) = result else { return body };
        if changes.is_empty() {
            return body;
        }
        let mut state = self.state.lock();
        state.polls += 1;
        if !state.polls.is_multiple_of(SPOILS_ONE_IN) {
            return body;
        }
        changes.remove(0);
        with_result(call, Value::Array(changes).to_string().as_bytes())
    }

    fn keep(
        &self,
        call: &[u8],
        body: Vec<u8>,
        cache: Option<&'static str>,
    ) -> (Vec<u8>, Option<&'static str>) {
        // Of calls that are written out, and of those that the proxy itself would keep.
        let (Some(result), Some(_)) = (raw::field(&body, "result"), cache) else {
            return (body, cache);
        };
        let (Some(method), Some(params)) = (raw::field(call, "method"), raw::field(call, "params"))
        else {
            return (body, cache);
        };
        let key = [method, params].concat();
        let mut state = self.state.lock();
        match state.first.get(&key) {
            Some(first) => (with_result(call, first), Some("hit")),
            None => {
                state.first.insert(key, result.to_vec());
                (body, cache)
            }
        }
    }
}

/// Spoils what one connection is told.
#[derive(Debug)]
pub(crate) struct NoticeSaboteur {
    sabotage: Option<Sabotage>,
    /// The number of the connection.
    session: usize,
    told: usize,
    held: Option<Vec<u8>>,
}

impl NoticeSaboteur {
    /// For one connection.
    pub(crate) fn new(sabotage: Option<Sabotage>, session: usize) -> Self {
        Self { sabotage, session, told: 0, held: None }
    }

    /// How much later than it could it is told something.
    pub(crate) fn delay(&self) -> Duration {
        match self.sabotage {
            Some(Sabotage::TellLate) => Duration::from_secs(60),
            Some(Sabotage::TellInTurns) if self.session % 2 == 1 => Duration::from_millis(300),
            _ => Duration::ZERO,
        }
    }

    /// Whether it is told nothing any more.
    pub(crate) fn is_silent(&self) -> bool {
        self.sabotage == Some(Sabotage::FallSilent) && self.told >= SPOILS_ONE_IN
    }

    /// Whether the connection stays when its client has left.
    pub(crate) fn keeps_session(&self) -> bool {
        self.sabotage == Some(Sabotage::KeepSession)
    }

    /// What comes in the place of a notification.
    pub(crate) fn spoil(&mut self, message: Vec<u8>) -> Vec<Vec<u8>> {
        let has = |word: &str| replaced(&message, word, "") != message;
        let (is_of_head, is_of_log) = (has("parentHash"), has("logIndex"));
        let is_hit = match self.sabotage {
            Some(Sabotage::SkipHeads) => is_of_head,
            Some(Sabotage::LoseLogs) => is_of_log,
            Some(Sabotage::RepeatPending | Sabotage::LosePending) => !is_of_head && !is_of_log,
            _ => true,
        };
        self.told += usize::from(is_hit);
        let is_hit = is_hit && self.told.is_multiple_of(SPOILS_ONE_IN);
        match self.sabotage {
            Some(Sabotage::SkipHeads | Sabotage::LoseLogs | Sabotage::LosePending) if is_hit => {
                Vec::new()
            }
            Some(Sabotage::RepeatPending) if is_hit => vec![message.clone(), message],
            Some(Sabotage::SwapNotices) if is_hit => {
                self.held.replace(message).into_iter().collect()
            }
            Some(Sabotage::NumberNotices) => {
                vec![replaced(&message, "{\"jsonrpc", "{\"id\":1,\"jsonrpc")]
            }
            _ => [Some(message), self.held.take()].into_iter().flatten().collect(),
        }
    }
}

fn replaced(body: &[u8], from: &str, to: &str) -> Vec<u8> {
    String::from_utf8_lossy(body).replace(from, to).into_bytes()
}

/// The answer to a single call with this result.
fn with_result(call: &[u8], result: &[u8]) -> Vec<u8> {
    let id = raw::field(call, "id").unwrap_or(b"null");
    [br#"{"jsonrpc":"2.0","id":"#, id, br#","result":"#, result, b"}"].concat()
}
