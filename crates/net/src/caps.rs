//! What the ends of its HTTP/2 connections teach about an upstream: how many
//! streams at once, how many requests and how long a silence one connection bears.
//!
//! Some servers announce more than they bear, or nothing, and end the connection
//! instead of refusing: everything in flight on it is lost. Each end is told here
//! ([`Ending`]) and may teach one thing:
//!
//! - **Streams.** An abrupt end (a plain close, a reset, GOAWAY with an error, a
//!   storm of resets) with [`MANY`] streams or more open teaches at once: that number
//!   is fatal, and [`below`] it is the cap from then on. An orderly GOAWAY spares
//!   what is under way, and other things cause it, so that it takes two with about
//!   as many streams. A number that an answered ping has shown to be borne
//!   (`proven`) is doubted only by a second death.
//! - **Requests.** Two orderly ends after about as many requests, or three abrupt ones, as a call
//!   on which a server breaks ends a connection as well: connections are replaced at nine tenths
//!   of that.
//! - **Silence.** Two ends after about as long a silence: unused connections are
//!   closed at four fifths of that.
//!
//! Only what the peer did while nothing was wrong with us counts. A connection on which we called
//! off a quarter of the requests, as a client can have us do that goes away again and again, may
//! have ended for that: servers bear about a hundred resets. Its end teaches neither streams nor
//! requests. When it cannot be
//! reached right afterwards it was down, and the lesson is taken back.
//!
//! No lesson is for ever. A cap of streams is tried upwards by one connection at a
//! time, each [`TRIAL_EVERY`], half way to the fatal number, and when a ping proves
//! the trial the cap follows; after [`FORGET`] the fatal number is forgotten and
//! trials may double the cap. The other two are forgotten after [`FORGET`].
//!
//! One per upstream, for all workers: they read atomics; the lock is taken when a
//! connection opens or ends and when the pool is swept. `pool` and `h2` act on it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Streams that must have been open for their number to be blamed. Below it a
/// wrong lesson would cost more than a death.
pub(crate) const MANY: usize = 32;
/// Borne by nearly every server: most allow 100.
const USUAL: usize = 90;
/// Requests after which an end may have to do with their number.
const REQUESTS_MIN: u64 = 64;
/// Called-off requests may be the reason why a connection ended when they are at least one in
/// `CALLED_OFF_SHARE` of its requests, and at least `CALLED_OFF_MIN`. Servers bear fewer.
const CALLED_OFF_SHARE: u64 = 4;
/// See [`CALLED_OFF_SHARE`].
const CALLED_OFF_MIN: u64 = 10;
/// Abrupt ends after about as many requests that teach their number.
const ABRUPT_ENDS_MIN: u32 = 3;
/// Orderly ones.
const ORDERLY_ENDS_MIN: u32 = 2;
/// A silence that may be the reason of an end.
const IDLE_MIN: Duration = Duration::from_secs(1);
/// How long a death may have been the beginning of an outage.
const DOWN_WITHIN: Duration = Duration::from_secs(5);
/// Time between trials of a larger cap, by one connection at a time.
const TRIAL_EVERY: Duration = Duration::from_secs(600);
/// For how long an answered ping speaks for a number of streams.
const PROVEN_FOR: Duration = Duration::from_secs(3600);
/// Servers are reconfigured: after this a lesson is no longer believed.
const FORGET: Duration = Duration::from_secs(24 * 3600);

/// How the peer ended a connection, or announced its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) manner: Manner,
    /// Streams without a whole answer at that moment.
    pub(crate) open: usize,
    /// The most that there were in its life.
    pub(crate) peak: usize,
    /// Requests that it took in.
    pub(crate) requests: u64,
    /// Those of them that we called off with a reset.
    pub(crate) called_off: u64,
    /// How long nothing had arrived.
    pub(crate) silence: Duration,
}

impl Ending {
    /// Whether clients that went away may be the reason.
    fn is_provoked(&self) -> bool {
        self.called_off >= CALLED_OFF_MIN
            && self.called_off.saturating_mul(CALLED_OFF_SHARE) >= self.requests
    }
}

/// With or without regard for what was under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// GOAWAY without an error.
    Orderly,
    /// Anything else.
    Abrupt,
}

/// How the streams that one HTTP/2 connection bears were learnt.
/// Its words stand in metrics and the status page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray, strum::VariantNames)]
pub enum Lesson {
    /// The upstream refused a stream above this number.
    #[strum(serialize = "refused")]
    Refusal,
    /// The connection died when it carried this number of streams.
    #[strum(serialize = "died")]
    Death,
    /// Several connections ended with GOAWAY at about this number of streams.
    #[strum(serialize = "goaway")]
    Goaways,
}

wellhead_word::words!(Lesson);

/// What one HTTP/2 connection to an upstream was found to bear, from how connections
/// ended. `None` where nothing speaks for a bound; the settings hold besides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LearntCaps {
    /// Streams at once. One connection at a time may be trying more.
    pub streams: Option<usize>,
    /// What that rests on.
    pub streams_lesson: Option<Lesson>,
    /// The fewest streams with which a connection died.
    pub streams_fatal: Option<usize>,
    /// The most streams with which a connection was seen to be well, if 32 or more.
    pub streams_proven: Option<usize>,
    /// Requests after which a connection is replaced.
    pub requests: Option<u64>,
    /// How long a connection may stay unused.
    pub idle: Option<Duration>,
}

/// What was learnt of one upstream, over all workers.
#[derive(Debug)]
pub(crate) struct SharedCaps {
    /// `usize::MAX` where nothing is known.
    streams: AtomicUsize,
    /// Requests from which a connection is replaced; `u64::MAX` for never.
    requests: AtomicU64,
    /// Milliseconds after which an unused connection is closed; `u64::MAX` for never.
    idle: AtomicU64,
    lessons: Mutex<Lessons>,
}

impl Default for SharedCaps {
    fn default() -> Self {
        Self {
            streams: AtomicUsize::new(usize::MAX),
            requests: AtomicU64::new(u64::MAX),
            idle: AtomicU64::new(u64::MAX),
            lessons: Mutex::default(),
        }
    }
}

impl SharedCaps {
    /// Streams at once on one connection.
    pub(crate) fn streams(&self) -> usize {
        self.streams.load(Relaxed)
    }

    /// Requests from which on a connection is to be replaced.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    /// How long a connection may stay unused.
    pub(crate) fn idle(&self) -> Duration {
        match self.idle.load(Relaxed) {
            u64::MAX => Duration::MAX,
            millis => Duration::from_millis(millis),
        }
    }

    /// For people and metrics.
    pub(crate) fn learnt(&self) -> LearntCaps {
        self.lessons.lock().summary()
    }

    /// The peer ended a connection.
    pub(crate) fn ended(&self, ending: &Ending, now: Instant) {
        self.change(|lessons| lessons.ended(ending, now));
    }

    /// The peer refused a stream while it bore `streams` others.
    pub(crate) fn refused(&self, streams: usize, now: Instant) {
        // Many streams are refused together: only the first of them takes the lock.
        if streams >= MANY && streams < self.streams() {
            self.change(|lessons| lessons.streams.refused(streams, now));
        }
    }

    /// The peer answered a ping with this many streams open.
    pub(crate) fn proven(&self, streams: usize, now: Instant) {
        if streams >= MANY {
            self.change(|lessons| lessons.streams.proven(streams, now));
        }
    }

    /// The peer could not be reached.
    pub(crate) fn was_down(&self, now: Instant) {
        self.change(|lessons| lessons.was_down(now));
    }

    /// Time has passed.
    pub(crate) fn refresh(&self, now: Instant) {
        self.change(|lessons| lessons.refresh(now));
    }

    /// A larger cap for the connection that asks, if one is to be tried; `bound` is
    /// what the settings allow. [`SharedCaps::trial_over`] must follow.
    pub(crate) fn trial(&self, bound: usize, now: Instant) -> Option<usize> {
        if self.streams() == usize::MAX {
            return None;
        }
        self.change(|lessons| lessons.streams.trial(bound, now))
    }

    /// The connection with a trial has ended.
    pub(crate) fn trial_over(&self) {
        self.lessons.lock().streams.on_trial = false;
    }

    fn change<T>(&self, change: impl FnOnce(&mut Lessons) -> T) -> T {
        let mut lessons = self.lessons.lock();
        let done = change(&mut lessons);
        self.streams.store(lessons.streams.cap.unwrap_or(usize::MAX), Relaxed);
        self.requests.store(lessons.requests.bound().unwrap_or(u64::MAX), Relaxed);
        self.idle.store(lessons.idle.bound().unwrap_or(u64::MAX), Relaxed);
        done
    }
}

/// What the atomics are made from.
#[derive(Debug)]
struct Lessons {
    streams: Streams,
    requests: Repeated,
    /// In milliseconds.
    idle: Repeated,
}

impl Default for Lessons {
    fn default() -> Self {
        Self { streams: Streams::default(), requests: Repeated::new(90), idle: Repeated::new(80) }
    }
}

impl Lessons {
    fn ended(&mut self, ending: &Ending, now: Instant) {
        let is_provoked = ending.is_provoked();
        if !is_provoked && self.streams.ended(ending, now) {
            return;
        }
        if ending.open == 0 && ending.silence >= IDLE_MIN {
            let millis = u64::try_from(ending.silence.as_millis()).unwrap_or(u64::MAX);
            self.idle.saw(millis, (millis / 10).max(1000), ORDERLY_ENDS_MIN, now);
        } else if !is_provoked && ending.requests >= REQUESTS_MIN {
            let ends_min = match ending.manner {
                Manner::Orderly => ORDERLY_ENDS_MIN,
                Manner::Abrupt => ABRUPT_ENDS_MIN,
            };
            // Without a GOAWAY the number of accepted requests is unknown.
            self.requests.saw(ending.requests, ending.requests / 50 + 2, ends_min, now);
        }
    }

    fn was_down(&mut self, now: Instant) {
        self.streams.was_down(now);
        self.requests.was_down(now);
        self.idle.was_down(now);
    }

    fn refresh(&mut self, now: Instant) {
        self.requests.refresh(now);
        self.idle.refresh(now);
    }

    fn summary(&self) -> LearntCaps {
        LearntCaps {
            streams: self.streams.cap,
            streams_lesson: self.streams.cap.and(self.streams.lesson),
            streams_fatal: self.streams.fatal.map(|(streams, _)| streams),
            streams_proven: self.streams.proven.map(|(streams, _)| streams),
            requests: self.requests.bound(),
            idle: self.idle.bound().map(Duration::from_millis),
        }
    }
}

/// The cap of streams and what it rests on.
#[derive(Debug, Default)]
struct Streams {
    cap: Option<usize>,
    /// What the cap was last lowered by.
    lesson: Option<Lesson>,
    /// With when it was last seen.
    fatal: Option<(usize, Instant)>,
    proven: Option<(usize, Instant)>,
    /// A connection died with no more than what was proven.
    doubted: bool,
    /// The streams open at the last orderly GOAWAY.
    orderly: Option<usize>,
    /// Before the last lesson, and when that was: an outage takes it back.
    before: Option<Before>,
    next_trial: Option<Instant>,
    on_trial: bool,
}

#[derive(Debug)]
struct Before {
    cap: Option<usize>,
    lesson: Option<Lesson>,
    fatal: Option<(usize, Instant)>,
    learnt_at: Instant,
}

impl Streams {
    /// Whether the end is explained by its streams.
    fn ended(&mut self, ending: &Ending, now: Instant) -> bool {
        let open = ending.open;
        // It has borne more before.
        if open < MANY || open * 4 < ending.peak * 3 {
            return false;
        }
        if ending.manner == Manner::Orderly {
            let last = self.orderly.replace(open);
            if last.is_none_or(|last| last.abs_diff(open) > open / 8) {
                return false;
            }
        }
        if self.proven_at(now) >= open && !std::mem::replace(&mut self.doubted, true) {
            return false;
        }
        let proven = self.proven_at(now).min(open - margin(open));
        let borne = if self.proven_at(now) >= open { 0 } else { proven };
        let lesson = match ending.manner {
            Manner::Orderly => Lesson::Goaways,
            Manner::Abrupt => Lesson::Death,
        };
        self.learn(lesson, open, below(open).max(borne), now);
        true
    }

    fn learn(&mut self, lesson: Lesson, fatal: usize, cap: usize, now: Instant) {
        let Self { cap: known, lesson: how, fatal: seen, .. } = *self;
        self.before = Some(Before { cap: known, lesson: how, fatal: seen, learnt_at: now });
        let lowest = self.fatal.map_or(fatal, |(known, _)| known.min(fatal));
        self.fatal = Some((lowest, now));
        // A trial that went wrong, or a connection filled before the lesson, says
        // nothing against the cap.
        if self.cap.is_none_or(|known| fatal <= known) {
            self.cap = Some(cap);
            self.lesson = Some(lesson);
            self.proven = self.proven.filter(|(proven, _)| *proven < fatal);
            self.doubted = false;
        }
        self.next_trial = Some(now + TRIAL_EVERY);
    }

    fn refused(&mut self, streams: usize, now: Instant) {
        if self.cap.is_none_or(|cap| streams < cap) {
            self.learn(Lesson::Refusal, streams + 1, streams, now);
        }
    }

    fn proven_at(&self, now: Instant) -> usize {
        let known = self.proven.filter(|(_, at)| now.saturating_duration_since(*at) < PROVEN_FOR);
        known.map_or(0, |(streams, _)| streams)
    }

    fn proven(&mut self, streams: usize, now: Instant) {
        if streams < self.proven_at(now) {
            return;
        }
        self.proven = Some((streams, now));
        self.doubted = false;
        if let Some(cap) = self.cap {
            let bound = self.fatal.map_or(usize::MAX, |(fatal, _)| fatal - margin(fatal));
            self.cap = Some(cap.max(streams.min(bound)));
        }
    }

    fn was_down(&mut self, now: Instant) {
        if let Some(before) = self.before.take()
            && now.saturating_duration_since(before.learnt_at) <= DOWN_WITHIN
        {
            (self.cap, self.lesson, self.fatal) = (before.cap, before.lesson, before.fatal);
        }
    }

    fn trial(&mut self, bound: usize, now: Instant) -> Option<usize> {
        let cap = self.cap?;
        if self.fatal.is_some_and(|(_, at)| now.saturating_duration_since(at) >= FORGET) {
            self.fatal = None;
        }
        if cap >= bound && self.fatal.is_none() {
            self.cap = None;
            return None;
        }
        if self.on_trial || self.next_trial.is_some_and(|at| now < at) {
            return None;
        }
        let most = match self.fatal {
            Some((fatal, _)) => cap + (fatal - margin(fatal)).saturating_sub(cap).div_ceil(2),
            None => cap * 2,
        };
        let tried = most.min(bound);
        if tried <= cap {
            return None;
        }
        self.on_trial = true;
        self.next_trial = Some(now + TRIAL_EVERY);
        Some(tried)
    }
}

/// A cap that is safe where `fatal` streams were too many. The peer may have
/// ended the connection before it saw them all.
fn below(fatal: usize) -> usize {
    (fatal * 3 / 4).min(USUAL)
}

/// How close to the fatal number a proven one may come.
fn margin(fatal: usize) -> usize {
    (fatal / 16).max(1)
}

/// A number at which connections end again and again.
#[derive(Debug)]
struct Repeated {
    /// What is used of it.
    percent: u64,
    last: Option<u64>,
    /// How often connections ended there one after the other.
    times: u32,
    learnt: Option<(u64, Instant)>,
    before: Option<(Option<(u64, Instant)>, Instant)>,
}

impl Repeated {
    fn new(percent: u64) -> Self {
        Self { percent, last: None, times: 0, learnt: None, before: None }
    }

    /// Notes an end at `value`; `times_min` of them in a row, within `slack`, teach.
    fn saw(&mut self, value: u64, slack: u64, times_min: u32, now: Instant) {
        let close = |other: &u64| other.abs_diff(value) <= slack;
        let last = self.last.replace(value).filter(close);
        self.times = if last.is_some() { self.times.saturating_add(1) } else { 1 };
        let known = self.learnt.map(|(value, _)| value).filter(close);
        match last.filter(|_| self.times >= times_min).or(known) {
            Some(again) => {
                self.before = Some((self.learnt, now));
                self.learnt = Some((again.min(value), now));
            }
            None => self.before = None,
        }
    }

    fn bound(&self) -> Option<u64> {
        self.learnt.map(|(value, _)| value / 100 * self.percent + value % 100 * self.percent / 100)
    }

    fn was_down(&mut self, now: Instant) {
        self.last = None;
        if let Some((before, at)) = self.before.take()
            && now.saturating_duration_since(at) <= DOWN_WITHIN
        {
            self.learnt = before;
        }
    }

    fn refresh(&mut self, now: Instant) {
        self.learnt = self.learnt.filter(|(_, at)| now.saturating_duration_since(*at) < FORGET);
    }
}

#[cfg(test)]
mod tests;
