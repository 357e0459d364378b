//! How a connection ends, and what is counted and logged for it.

use std::error::Error as _;

use crate::count::ServerCounters;
use crate::link::{ClientLink, TooSlow};

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionEnd {
    ByItself,
    BadHttp,
    TooSlow(TooSlow),
    /// More resets or errors of its streams than can be meant.
    Flooding,
    /// Another connection took its place, which was counted then.
    Displaced,
    /// The drain time was over.
    Cut,
}

impl ConnectionEnd {
    pub(crate) fn count(self, link: &ClientLink) {
        let counters = &link.shared.counters;
        match self {
            Self::ByItself | Self::Displaced | Self::TooSlow(TooSlow::Linger) => {}
            Self::BadHttp => ServerCounters::add(&counters.bad_http_total),
            Self::TooSlow(TooSlow::Idle | TooSlow::Silent) => {
                ServerCounters::add(&counters.idle_closed_total);
            }
            Self::TooSlow(TooSlow::Head) => ServerCounters::add(&counters.slow_head_total),
            Self::TooSlow(TooSlow::Reader) => ServerCounters::add(&counters.slow_reader_total),
            Self::TooSlow(TooSlow::Hoarder) => {
                ServerCounters::add(&counters.hoarders_total);
                link.shared.hint_at_hoarder(link.peer);
            }
            Self::Flooding => {
                ServerCounters::add(&counters.floods_total);
                link.shared.hint_at_flood(link.peer);
            }
            Self::Cut => ServerCounters::add(&counters.drain_dropped_total),
        }
    }
}

impl From<Result<(), hyper::Error>> for ConnectionEnd {
    fn from(ended: Result<(), hyper::Error>) -> Self {
        match ended {
            Ok(()) => Self::ByItself,
            Err(error) if error.is_parse() || error.is_parse_too_large() => Self::BadHttp,
            Err(error) if is_flood(&error) => Self::Flooding,
            Err(error) => {
                // Clients come and go; h2 names its errors in the connection's own words.
                tracing::debug!(%error, "connection ended");
                Self::ByItself
            }
        }
    }
}

/// Whether h2 itself ended the connection for what it bounds.
fn is_flood(error: &hyper::Error) -> bool {
    let source = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
    source.is_some_and(|error| {
        error.is_library() && error.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM)
    })
}
