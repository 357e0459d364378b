//! One subscription: when it began and ended, and what it was told.

use wellhead_sim::rpc::logs::Criteria;

use crate::evidence::{At, Evidence};
use crate::session::{
    Crossing, HeadNotice, LogNotice, Notice, PendingForm, Session, SessionCall, SessionEnd,
};
use alloy_primitives::B256;

/// What was told, when, and as which crossing of its connection.
#[derive(Debug)]
pub(super) struct Told<'a, T> {
    pub(super) place: usize,
    pub(super) at: At,
    pub(super) notice: &'a T,
}

/// What a subscription is to.
#[derive(Debug)]
pub(super) enum StreamKind<'a> {
    Heads(Vec<Told<'a, HeadNotice>>),
    Logs(Box<Criteria>, Vec<Told<'a, LogNotice>>),
    Pending(PendingForm, Vec<Told<'a, B256>>),
}

/// One subscription.
#[derive(Debug)]
pub(super) struct Stream<'a> {
    pub(super) session: &'a Session,
    /// The number of its connection.
    pub(super) number: usize,
    pub(super) id: String,
    /// When the client asked for it, and was told its id.
    pub(super) asked: At,
    pub(super) since: At,
    /// When the client asked for its end, or the connection ended.
    pub(super) until: At,
    pub(super) end: StreamEnd,
    pub(super) kind: StreamKind<'a>,
}

/// How a subscription ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamEnd {
    Unsubscribed,
    With(SessionEnd),
}

impl<'a> Stream<'a> {
    /// Those of one connection.
    pub(super) fn all_of(number: usize, session: &'a Session) -> Vec<Self> {
        let mut streams = Vec::new();
        for (at, crossing) in &session.crossed {
            let Crossing::Answered(call, Ok(result)) = crossing else { continue };
            let Some((asked, called)) = asked(session, *call) else { continue };
            let kind = match called {
                SessionCall::Heads => StreamKind::Heads(Vec::new()),
                SessionCall::Logs(text) => {
                    let filter = serde_json::from_str(text).expect("the client wrote it");
                    let criteria = Criteria::read(&filter).expect("the client wrote a filter");
                    StreamKind::Logs(Box::new(criteria), Vec::new())
                }
                SessionCall::Pending(form) => StreamKind::Pending(*form, Vec::new()),
                SessionCall::Unsubscribe(_) | SessionCall::Filter(..) => continue,
            };
            let id = result.trim_matches('"').to_owned();
            let (until, end) = end_of(session, &id);
            streams.push(Self { session, number, id, asked, since: *at, until, end, kind });
        }
        for (place, (at, crossing)) in session.crossed.iter().enumerate() {
            let Crossing::Told(notice) = crossing else { continue };
            let id = notice.subscription();
            let Some(stream) = streams.iter_mut().find(|it| Some(&*it.id) == id) else { continue };
            match (&mut stream.kind, notice) {
                (StreamKind::Heads(told), Notice::Head(_, notice)) => {
                    told.push(Told { place, at: *at, notice });
                }
                (StreamKind::Logs(_, told), Notice::Log(_, notice)) => {
                    told.push(Told { place, at: *at, notice });
                }
                (StreamKind::Pending(_, told), Notice::Pending(_, notice)) => {
                    told.push(Told { place, at: *at, notice });
                }
                // For `protocol`.
                _ => {}
            }
        }
        streams
    }

    pub(super) fn is_of_heads(&self) -> bool {
        matches!(self.kind, StreamKind::Heads(_))
    }

    pub(super) fn is_of_logs(&self) -> bool {
        matches!(self.kind, StreamKind::Logs(..))
    }

    pub(super) fn heads(&self) -> &[Told<'a, HeadNotice>] {
        match &self.kind {
            StreamKind::Heads(told) => told,
            StreamKind::Logs(..) | StreamKind::Pending(..) => &[],
        }
    }

    pub(super) fn logs(&self) -> &[Told<'a, LogNotice>] {
        match &self.kind {
            StreamKind::Heads(_) | StreamKind::Pending(..) => &[],
            StreamKind::Logs(_, told) => told,
        }
    }

    /// What it is called in a finding.
    pub(super) fn name(&self) -> String {
        format!("s{} {}", self.number, self.id)
    }

    /// Whether it is there between two moments, and its client reads all that time.
    pub(super) fn listens(&self, from: At, until: At) -> bool {
        self.since <= from && self.until >= until && !is_stalled(self.session, from, until)
    }
}

/// The call of this id, and when it was made.
fn asked(session: &Session, id: u64) -> Option<(At, &SessionCall)> {
    session.crossed.iter().find_map(|(at, crossing)| match crossing {
        Crossing::Asked(call, what) if *call == id => Some((*at, what)),
        _ => None,
    })
}

fn end_of(session: &Session, id: &str) -> (At, StreamEnd) {
    let unsubscribed = session.crossed.iter().find_map(|(at, crossing)| match crossing {
        Crossing::Asked(_, SessionCall::Unsubscribe(of)) if of == id => Some(*at),
        _ => None,
    });
    match (unsubscribed, session.closed) {
        (Some(at), _) => (at, StreamEnd::Unsubscribed),
        (None, Some((at, end))) => (at, StreamEnd::With(end)),
        (None, None) => (At::MAX, StreamEnd::With(SessionEnd::Left)),
    }
}

/// Whether the client of a connection reads nothing at some time between two moments.
pub(super) fn is_stalled(session: &Session, from: At, until: At) -> bool {
    let mut stalled_at = None;
    for (at, crossing) in &session.crossed {
        if *crossing == Crossing::Stalled {
            stalled_at = Some(*at);
        } else if *crossing == Crossing::Resumed
            && stalled_at.take().is_some_and(|began| began <= until && *at >= from)
        {
            return true;
        }
    }
    stalled_at.is_some_and(|began| began <= until)
}

/// The blocks of a chain in the order in which they were made or came back, with the time.
pub(super) fn made(evidence: &Evidence, chain: usize) -> Vec<(At, u64, B256)> {
    let mut seen: std::collections::HashMap<u64, usize> = std::collections::HashMap::new();
    let heights = evidence.heights[chain].iter();
    let block = |(at, number): &(At, u64)| {
        let place = seen.entry(*number).or_default();
        let hash = *evidence.blocks[chain].get(number)?.get(*place)?;
        *place += 1;
        Some((*at, *number, hash))
    };
    heights.filter_map(block).collect()
}

/// How often a block became part of the chain.
pub(super) fn times_made(evidence: &Evidence, chain: usize, hash: B256) -> usize {
    made(evidence, chain).iter().filter(|(_, _, other)| *other == hash).count()
}

/// When a block was first replaced after a moment; `None` where it stayed.
pub(super) fn left_at(evidence: &Evidence, chain: usize, hash: B256, since: At) -> Option<At> {
    let reorgs = evidence.reorgs[chain].iter().filter(|reorg| reorg.at >= since);
    reorgs.filter(|reorg| reorg.dropped.contains(&hash)).map(|reorg| reorg.at).min()
}
