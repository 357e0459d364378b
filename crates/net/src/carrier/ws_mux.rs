//! Whose call is whose on one WebSocket connection: numbers out, answers in; no socket,
//! no task, no clock.
//!
//! Callers hand in a call under an id of their own. It goes out under a number that this
//! connection uses once, and its answer is found by that number and handed back under the
//! caller's id. An abandoned call is forgotten: its late answer is discarded. Only the
//! outermost id of a message is read; the caller judges the rest.

use std::collections::{HashMap, VecDeque};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use foldhash::fast::FixedState;
use tokio::time::Instant;
use wellhead_jsonrpc::{ReplyHead, Span, scan_head, scan_id, write};
use wellhead_transport::{Sent, TransportError, TransportErrorKind};

/// The first number of a connection: with as many digits as our ids have or more, so that
/// an answer never grows when it gets its caller's id.
const FIRST_NUMBER: u64 = 1_000;
/// Digits that an id is read with; more of them is none of ours.
const DIGITS_MAX: usize = 19;

/// The calls of one connection, shared by its task and its callers.
#[derive(Debug)]
pub(super) struct WsMux {
    next: u64,
    /// To be written, in order.
    unwritten: VecDeque<(u64, Vec<u8>)>,
    calls: HashMap<u64, PendingCall, FixedState>,
    /// Written, given up, and not answered yet: the peer may still be at work on them.
    lost: usize,
    /// When the last call came.
    used: Instant,
    /// Set while the task sleeps.
    task: Option<Waker>,
    /// A call timed out; the task has not checked the peer yet.
    doubted: bool,
    has_answered: bool,
    /// Takes no more calls, and ends after the last one.
    leaving: bool,
    /// Why nothing more will come.
    ended: Option<(TransportErrorKind, String)>,
}

#[derive(Debug)]
struct PendingCall {
    /// What the caller called it.
    id: u64,
    written: bool,
    /// Woken when the answer is there.
    caller: Option<Waker>,
    answer: Option<Result<WsAnswer, TransportError>>,
}

/// An answer under its caller's id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WsAnswer {
    pub(super) body: Bytes,
    /// When it had arrived.
    pub(super) at: Instant,
}

/// The id of a call of ours: a plain integer, and where it stands.
pub(super) fn own_id(body: &[u8]) -> Option<(Span, u64)> {
    let span = scan_id(body)?;
    Some((span, integer(span.of(body))?))
}

fn integer(text: &[u8]) -> Option<u64> {
    let is_plain = (1..=DIGITS_MAX).contains(&text.len())
        && text.iter().all(u8::is_ascii_digit)
        && (text.len() == 1 || text[0] != b'0');
    is_plain.then(|| text.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

/// `body` with another id.
fn relabelled(body: &[u8], at: Span, id: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + DIGITS_MAX);
    out.extend_from_slice(&body[..at.start as usize]);
    write::integer(&mut out, id);
    out.extend_from_slice(&body[at.end as usize..]);
    out
}

impl WsMux {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            next: FIRST_NUMBER,
            unwritten: VecDeque::new(),
            calls: HashMap::default(),
            lost: 0,
            used: now,
            task: None,
            doubted: false,
            has_answered: false,
            leaving: false,
            ended: None,
        }
    }

    /// Takes a call that carries `id` at `at`; its number is what it is asked for by.
    pub(super) fn hand_in(
        &mut self,
        body: &[u8],
        (at, id): (Span, u64),
        now: Instant,
    ) -> Result<u64, TransportError> {
        if let Some((kind, detail)) = &self.ended {
            return Err(TransportError::new(*kind, Sent::No, detail.as_str()));
        }
        if self.leaving {
            let detail = "the connection is being replaced";
            return Err(TransportError::new(TransportErrorKind::Closed, Sent::No, detail));
        }
        let number = self.next;
        self.next += 1;
        self.used = now;
        self.unwritten.push_back((number, relabelled(body, at, number)));
        self.calls.insert(number, PendingCall { id, written: false, caller: None, answer: None });
        self.wake();
        Ok(number)
    }

    /// The answer to a call that was handed in and not forgotten.
    pub(super) fn poll_answer(
        &mut self,
        cx: &mut Context<'_>,
        number: u64,
    ) -> Poll<Result<WsAnswer, TransportError>> {
        let Some(call) = self.calls.get_mut(&number) else {
            let detail = "the answer was taken already";
            return Poll::Ready(Err(TransportError::new(
                TransportErrorKind::Closed,
                Sent::Maybe,
                detail,
            )));
        };
        if let Some(answer) = call.answer.take() {
            self.calls.remove(&number);
            if self.leaving {
                self.wake();
            }
            return Poll::Ready(answer);
        }
        match &mut call.caller {
            Some(caller) => caller.clone_from(cx.waker()),
            caller @ None => *caller = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Abandons this call. Does nothing if its answer was taken.
    pub(super) fn forget(&mut self, number: u64) {
        let Some(call) = self.calls.remove(&number) else { return };
        if !call.written {
            self.unwritten.retain(|(unwritten, _)| *unwritten != number);
        } else if call.answer.is_none() {
            self.lost += 1;
            self.doubted = true;
            self.wake();
        }
        if self.leaving {
            self.wake();
        }
    }

    /// The next message to write. From now on the peer may have seen it.
    pub(super) fn take_unwritten(&mut self) -> Option<Vec<u8>> {
        let (number, message) = self.unwritten.pop_front()?;
        if let Some(call) = self.calls.get_mut(&number) {
            call.written = true;
        }
        Some(message)
    }

    /// Takes a message of the peer. `false` if it answers no pending call.
    pub(super) fn receive(&mut self, message: &[u8], now: Instant) -> bool {
        let Some((at, number)) = self.addressed(message) else { return false };
        let Some(call) = self.calls.get_mut(&number) else {
            // Numbers that were never given out are no late answers.
            if (FIRST_NUMBER..self.next).contains(&number) {
                self.lost = self.lost.saturating_sub(1);
            }
            return false;
        };
        // An answer to what was not asked yet, or a second one, is not believed.
        if !call.written || call.answer.is_some() {
            return false;
        }
        self.has_answered = true;
        let body = match at {
            Some(at) => relabelled(message, at, call.id).into(),
            None => Bytes::copy_from_slice(message),
        };
        call.answer = Some(Ok(WsAnswer { body, at: now }));
        if let Some(caller) = call.caller.take() {
            caller.wake();
        }
        true
    }

    /// The call that a message is for, and where its number stands.
    ///
    /// An error under no id, which is how some refuse what they did not read, is for the
    /// one call that is under way, if there is but one.
    fn addressed(&self, message: &[u8]) -> Option<(Option<Span>, u64)> {
        let found = scan_id(message);
        if let Some(at) = found
            && let Some(number) = integer(at.of(message))
        {
            return Some((Some(at), number));
        }
        let nameless = found.is_none_or(|at| at.of(message) == b"null");
        if !nameless || self.lost > 0 || self.calls.len() != 1 {
            return None;
        }
        let is_error = matches!(scan_head(message), ReplyHead::Error { .. });
        let only = self.calls.keys().next().copied().filter(|_| is_error)?;
        Some((None, only))
    }

    /// Nothing more will come: fails every call that has no answer, those that were not
    /// written as certainly not processed.
    pub(super) fn end(&mut self, kind: TransportErrorKind, detail: &str) {
        self.unwritten.clear();
        for call in self.calls.values_mut().filter(|call| call.answer.is_none()) {
            let (kind, sent) = match call.written {
                true => (kind, Sent::Maybe),
                false => (TransportErrorKind::Closed, Sent::No),
            };
            call.answer = Some(Err(TransportError::new(kind, sent, detail)));
            if let Some(caller) = call.caller.take() {
                caller.wake();
            }
        }
        self.ended = Some((TransportErrorKind::Closed, detail.to_owned()));
    }

    /// Takes no more calls and lets those under way finish.
    pub(super) fn leave(&mut self) {
        self.leaving = true;
        self.wake();
    }

    /// Whether it takes no more calls and none is under way.
    pub(super) fn is_done(&self) -> bool {
        self.leaving && self.calls.is_empty()
    }

    /// Takes no more calls if there was none for as long as `idle`; whether that is so.
    pub(super) fn leave_if_idle(&mut self, idle: Duration, now: Instant) -> bool {
        let is_idle = self.idle_at(idle).is_some_and(|at| now >= at);
        self.leaving |= is_idle;
        is_idle
    }

    /// When it will have been idle for so long; `None` while a call is under way.
    pub(super) fn idle_at(&self, idle: Duration) -> Option<Instant> {
        self.calls.is_empty().then(|| self.used + idle)
    }

    /// Notes the task's waker; `false` when there is something to write after all.
    pub(super) fn sleep(&mut self, task: &Waker) -> bool {
        match &mut self.task {
            Some(known) => known.clone_from(task),
            known @ None => *known = Some(task.clone()),
        }
        self.unwritten.is_empty()
    }

    fn wake(&mut self) {
        if let Some(task) = self.task.take() {
            task.wake();
        }
    }

    /// Whether a call timed out since the last check.
    pub(super) fn take_doubt(&mut self) -> bool {
        std::mem::take(&mut self.doubted)
    }

    /// Calls that were given up and not answered yet.
    pub(super) fn lost(&self) -> usize {
        self.lost
    }

    /// Calls under way, with those that were given up.
    pub(super) fn under_way(&self) -> usize {
        self.calls.len() + self.lost
    }

    /// Whether any call was ever answered.
    pub(super) fn has_answered(&self) -> bool {
        self.has_answered
    }

    /// Whether nothing more will come.
    pub(super) fn is_over(&self) -> bool {
        self.ended.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: u64) -> Vec<u8> {
        let mut out = Vec::new();
        write::call(&mut out, id, "eth_call", Some(br#"[{"id":5}]"#));
        out
    }

    fn hand_in(mux: &mut WsMux, body: &[u8]) -> u64 {
        let own = own_id(body).expect("an id");
        mux.hand_in(body, own, Instant::now()).expect("taken")
    }

    /// Hands in and writes a call with the id 1.
    fn asked(mux: &mut WsMux) -> u64 {
        let number = hand_in(mux, &call(1));
        while mux.take_unwritten().is_some() {}
        number
    }

    fn answer(mux: &mut WsMux, number: u64) -> Option<Result<String, TransportError>> {
        let mut cx = Context::from_waker(Waker::noop());
        match mux.poll_answer(&mut cx, number) {
            Poll::Ready(answer) => Some(
                answer.map(|answer| String::from_utf8(answer.body.to_vec()).expect("still text")),
            ),
            Poll::Pending => None,
        }
    }

    fn receive(mux: &mut WsMux, message: &str) -> bool {
        mux.receive(message.as_bytes(), Instant::now())
    }

    #[test]
    fn a_call_travels_under_a_number_of_the_connection() {
        let mut mux = WsMux::new(Instant::now());
        let numbers = [1, 7, 42].map(|id| hand_in(&mut mux, &call(id)));
        assert_eq!(numbers, [1000, 1001, 1002]);
        let spoken: Vec<_> = std::iter::from_fn(|| mux.take_unwritten())
            .map(|message| String::from_utf8(message).expect("text"))
            .collect();
        let expected = numbers.map(|number| String::from_utf8(call(number)).expect("text"));
        assert_eq!(spoken, expected);
    }

    #[test]
    fn only_plain_integers_are_ids_of_ours() {
        let check = |id: &str, expected| {
            let body = format!(r#"{{"id":{id},"method":"x"}}"#);
            assert_eq!(own_id(body.as_bytes()).map(|(_, id)| id), expected, "{id}");
        };
        check("0", Some(0));
        check("1", Some(1));
        check("9999999999999999999", Some(9_999_999_999_999_999_999));
        check("18446744073709551616", None);
        for id in ["-1", "1.0", "1e3", "\"1\"", "null", "[1]"] {
            check(id, None);
        }
        assert_eq!(own_id(br#"[{"id":1}]"#), None);
    }

    #[test]
    fn answers_find_their_callers_in_any_order() {
        let mut mux = WsMux::new(Instant::now());
        let numbers: Vec<_> = (0..100).map(|id| hand_in(&mut mux, &call(id))).collect();
        while mux.take_unwritten().is_some() {}
        for number in numbers.iter().rev() {
            assert!(receive(&mut mux, &format!(r#"{{"id":{number},"result":{number}}}"#)));
        }
        for (id, number) in numbers.iter().enumerate() {
            let expected = format!(r#"{{"id":{id},"result":{number}}}"#);
            assert_eq!(answer(&mut mux, *number), Some(Ok(expected)));
        }
        assert_eq!(mux.under_way(), 0);
    }

    /// What becomes of an answer to the call with the number 1000; `-` when it belongs to no call.
    fn check(message: &str, expected: &str) {
        let mut mux = WsMux::new(Instant::now());
        // Two are under way, so that nothing is theirs by default.
        let (first, second) = (asked(&mut mux), asked(&mut mux));
        let claimed = receive(&mut mux, message);
        let found = answer(&mut mux, first).map_or("-".to_owned(), |it| it.expect("an answer"));
        assert_eq!(found, expected, "{message}");
        assert_eq!(claimed, expected != "-", "{message}");
        assert_eq!(answer(&mut mux, second), None, "{message}");
    }

    #[test]
    fn the_outermost_id_decides() {
        check(
            r#"{"jsonrpc":"2.0","id":1000,"result":{"id":1001}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"id":1001}}"#,
        );
        check(
            r#"{"result":[{"id":1001},"\"id\":1001"],"id":1000}"#,
            r#"{"result":[{"id":1001},"\"id\":1001"],"id":1}"#,
        );
        check(
            r#"{"error":{"code":3,"message":"x","id":1001},"id":1000}"#,
            r#"{"error":{"code":3,"message":"x","id":1001},"id":1}"#,
        );
        check(" {\"id\" : 1000 , \"result\":1}\n", " {\"id\" : 1 , \"result\":1}\n");
    }

    #[test]
    fn what_names_no_call_reaches_none() {
        check("", "-");
        check("garbage", "-");
        check("\u{0}\u{1}", "-");
        check(r#"{"id":1000"#, "-");
        check(r#"{"id":"1000","result":1}"#, "-");
        check(r#"{"id":1000.0,"result":1}"#, "-");
        check(r#"{"id":1,"result":1}"#, "-");
        check(r#"{"id":1002,"result":1}"#, "-");
        check(r#"{"id":99999999999999999999999,"result":1}"#, "-");
        check(r#"{"id":null,"error":{"code":1,"message":"x"}}"#, "-");
        check(r#"[{"id":1000,"result":1}]"#, "-");
        let announcement =
            r#"{"jsonrpc":"2.0","method":"eth_subscription","params":{"id":1000,"result":1}}"#;
        check(announcement, "-");
    }

    #[test]
    fn a_nameless_error_is_for_the_only_call() {
        let mut mux = WsMux::new(Instant::now());
        let number = asked(&mut mux);
        assert!(!receive(&mut mux, r#"{"method":"eth_subscription","params":{"error":1}}"#));
        assert!(!receive(&mut mux, r#"{"id":null,"result":"0x1"}"#));
        let refusal = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32005,"message":"slow"}}"#;
        assert!(receive(&mut mux, refusal));
        assert_eq!(answer(&mut mux, number), Some(Ok(refusal.to_owned())));

        // It may be for one that was given up.
        let (given_up, number) = (asked(&mut mux), asked(&mut mux));
        mux.forget(given_up);
        assert!(!receive(&mut mux, refusal));
        assert_eq!(answer(&mut mux, number), None);
    }

    #[test]
    fn a_late_answer_reaches_no_call() {
        let mut mux = WsMux::new(Instant::now());
        let (given_up, number) = (asked(&mut mux), asked(&mut mux));
        mux.forget(given_up);
        assert_eq!((mux.lost(), mux.under_way()), (1, 2));
        assert!(!receive(&mut mux, &format!(r#"{{"id":{given_up},"result":1}}"#)));
        assert_eq!((mux.lost(), mux.under_way()), (0, 1));
        assert_eq!(answer(&mut mux, number), None);
    }

    #[test]
    fn a_call_given_up_unwritten_is_never_written() {
        let mut mux = WsMux::new(Instant::now());
        let number = hand_in(&mut mux, &call(1));
        mux.forget(number);
        assert_eq!(mux.take_unwritten(), None);
        assert_eq!(mux.under_way(), 0);
    }

    #[test]
    fn an_answer_before_its_call_is_not_believed() {
        let mut mux = WsMux::new(Instant::now());
        let number = hand_in(&mut mux, &call(1));
        let message = format!(r#"{{"id":{number},"result":1}}"#);
        assert!(!receive(&mut mux, &message));
        while mux.take_unwritten().is_some() {}
        assert!(receive(&mut mux, &message));
        assert!(!receive(&mut mux, &message), "once is enough");
    }

    #[test]
    fn the_end_says_which_calls_were_written() {
        let mut mux = WsMux::new(Instant::now());
        let done = asked(&mut mux);
        assert!(receive(&mut mux, &format!(r#"{{"id":{done},"result":1}}"#)));
        let written = asked(&mut mux);
        let unwritten = hand_in(&mut mux, &call(1));
        mux.end(TransportErrorKind::Protocol, "broken");
        assert_eq!(answer(&mut mux, done), Some(Ok(r#"{"id":1,"result":1}"#.to_owned())));
        let failed = |kind, sent| Some(Err(TransportError::new(kind, sent, "broken")));
        use TransportErrorKind::{Closed, Protocol};
        assert_eq!(answer(&mut mux, written), failed(Protocol, Sent::Maybe));
        assert_eq!(answer(&mut mux, unwritten), failed(Closed, Sent::No));
        let (body, now) = (call(1), Instant::now());
        let late = mux.hand_in(&body, own_id(&body).expect("an id"), now);
        assert_eq!(late.map_err(|error| error.sent), Err(Sent::No));
    }

    #[test]
    fn a_connection_that_leaves_finishes_first() {
        let mut mux = WsMux::new(Instant::now());
        let number = asked(&mut mux);
        mux.leave();
        assert!(!mux.is_done());
        let body = call(1);
        let refused = mux.hand_in(&body, own_id(&body).expect("an id"), Instant::now());
        assert_eq!(refused.map_err(|error| error.sent), Err(Sent::No));
        assert!(receive(&mut mux, &format!(r#"{{"id":{number},"result":1}}"#)));
        assert!(answer(&mut mux, number).is_some());
        assert!(mux.is_done());
    }
}
