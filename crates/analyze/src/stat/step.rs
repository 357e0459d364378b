//! Where something tips over: streams at once, requests on a connection, silence.

/// What was tried at one size, over its repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TriedSize {
    /// Streams, or milliseconds.
    pub size: u64,
    /// Whether anything failed.
    pub failed: bool,
}

/// Where it tips.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tipping {
    /// The largest size at which nothing failed, below `fails_at`.
    pub holds: Option<u64>,
    /// The smallest size from which on every repeat failed, at every larger size too.
    pub fails_at: Option<u64>,
    /// Repeats at `fails_at`, or at the largest size where nothing tips.
    pub repeats: usize,
    /// Sizes at which some repeats failed and others did not, or that failed below one that held.
    pub odd: usize,
}

/// Finds it; nothing is assumed of the order. `None` where nothing was tried.
pub(crate) fn tipping(tried: &[TriedSize]) -> Option<Tipping> {
    let mut sizes: Vec<u64> = tried.iter().map(|tried| tried.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let at = |size: u64| tried.iter().filter(move |tried| tried.size == size);
    let all_failed = |size: &&u64| at(**size).all(|tried| tried.failed);
    let none_failed = |size: &&u64| at(**size).all(|tried| !tried.failed);
    let tipped = sizes.iter().rev().take_while(all_failed).count();
    let fails_at = sizes.iter().rev().take(tipped).next_back().copied();
    let below = &sizes[..sizes.len() - tipped];
    let holds = below.iter().rev().find(none_failed).copied();
    let odd = below.iter().filter(|size| !none_failed(size)).count();
    let repeats = at(fails_at.or(sizes.last().copied())?).count();
    Some(Tipping { holds, fails_at, repeats, odd })
}

/// After how many requests connections end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recycling {
    /// After this many, each time.
    After(u64),
    /// None ended, up to this many.
    Never(u64),
    /// They ended, each after another number.
    Irregular(Vec<u64>),
    /// Ended once: a second time would have to agree.
    Once(u64),
    /// No connection was tried.
    Nothing,
}

/// `ended` are the requests on connections that the other side ended, `held` those on
/// connections that were given up by us. They end regularly where the numbers differ by no more
/// than the calls that were under way, `slack`, or 1 %.
pub(crate) fn recycling(ended: &[u64], held: &[u64], slack: u64) -> Recycling {
    let mut ended = ended.to_vec();
    ended.sort_unstable();
    let longest = held.iter().copied().max();
    let (Some(least), Some(most)) = (ended.first().copied(), ended.last().copied()) else {
        return longest.map_or(Recycling::Nothing, Recycling::Never);
    };
    // One that bore more says that the others ended for another reason.
    let borne_more = longest.is_some_and(|held| held > most + slack);
    if borne_more || most - least > slack.max(most / 100) {
        return Recycling::Irregular(ended);
    }
    match ended.len() {
        1 => Recycling::Once(most),
        n => Recycling::After(ended[n / 2]),
    }
}
