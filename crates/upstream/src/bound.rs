//! The bounds that can hold a call back from an upstream: pauses, caps, rates, places.

use std::time::Duration;

/// What keeps a call from an upstream. Its words stand in metrics, status and the trail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum Bound {
    /// It asked for a pause.
    Pause,
    /// It refused the method of the call, which pauses.
    MethodPause,
    /// None of its own: wellhead measures where its limit is.
    Study,
    /// The credits of the day are spent.
    Day,
    /// The credits of the month are spent.
    Month,
    /// Its credits a second.
    Credits,
    /// Its calls a second.
    Calls,
    /// The rate that was learnt from its refusals.
    LearntRate,
    /// The rate that was learnt from its refusals of the method of the call.
    MethodRate,
    /// The calls that it may be sent at once.
    InFlight,
    /// The calls that it may be sent at once, learnt from its delay.
    LearntLimit,
    /// None of its own: the client has its share of the calls that it may be sent at once.
    ClientShare,
    /// None of its own: other calls wait for it already.
    Queue,
    /// None of its own: all of our connections to it carry a call.
    Connections,
    /// None of its own: calls whose answers are long have their share of our connections to it, and of
    /// the calls at once that were learnt.
    BulkyShare,
}

wellhead_word::words!(Bound);

impl Bound {
    /// Whether it ends when a call ends, and so perhaps sooner than was said.
    pub fn is_place(self) -> bool {
        match self {
            Self::InFlight
            | Self::LearntLimit
            | Self::ClientShare
            | Self::Queue
            | Self::Connections
            | Self::BulkyShare => true,
            Self::Pause
            | Self::MethodPause
            | Self::Study
            | Self::Day
            | Self::Month
            | Self::Credits
            | Self::Calls
            | Self::LearntRate
            | Self::MethodRate => false,
        }
    }

    /// Whether it is a pause.
    pub fn is_pause(self) -> bool {
        matches!(self, Self::Pause | Self::MethodPause | Self::Study)
    }

    /// Whether it holds calls of one method, of one kind or of one client, and says nothing of others.
    pub fn lets_others_pass(self) -> bool {
        matches!(self, Self::MethodPause | Self::MethodRate) || self.is_share()
    }

    /// Whether it is a share of places, which some calls have used up and others have not.
    pub fn is_share(self) -> bool {
        matches!(self, Self::ClientShare | Self::BulkyShare)
    }
}

/// What keeps a call from going now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitedBy {
    /// The bound that it is at.
    pub bound: Bound,
    /// How long until it may go, if no other call goes first.
    pub wait: Duration,
    /// How much longer that takes for each other call that goes first, about.
    pub pace: Duration,
}
