//! `reach`: what is served, how far, how much. The cells are told at `inquiry::reach`.

use std::collections::BTreeMap;

use super::finding::{Extent, Finding};
use super::trial::{Played, Trial};
use super::{Confidence, Found};

/// What became of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Served,
    Refused,
    Open,
}

impl Fate {
    pub(crate) fn of(played: &Played<'_>) -> Option<Self> {
        match played.factor("fate")? {
            "served" => Some(Self::Served),
            "refused" => Some(Self::Refused),
            "open" => Some(Self::Open),
            _ => None,
        }
    }
}

/// By method: whether a target serves it.
pub(crate) fn methods<'a>(trial: &Trial<'a>) -> BTreeMap<&'a str, Fate> {
    let mut methods = BTreeMap::new();
    for played in trial.played.iter().filter(|played| played.factor("probe") == Some("method")) {
        let name = played.cell.factors.get("value").map(String::as_str);
        if let (Some(name), Some(fate)) = (name, Fate::of(played)) {
            methods.insert(name, fate);
        }
    }
    methods
}

pub(super) fn reach(trial: &Trial<'_>) -> Vec<Found> {
    let mut sockets: Vec<(&str, Fate)> = Vec::new();
    let mut sizes: BTreeMap<&str, Vec<Tried<'_>>> = BTreeMap::new();
    for played in &trial.played {
        let (probe, value) = (played.factor("probe"), played.factor("value"));
        let (Some(probe), Some(value), Some(fate)) = (probe, value, Fate::of(played)) else {
            continue;
        };
        match (probe, value.parse()) {
            ("method", _) => {}
            ("websocket", _) => sockets.push((value, fate)),
            (probe, Ok(size)) => sizes.entry(probe).or_default().push(Tried { size, fate, played }),
            (_, Err(_)) => {}
        }
    }
    let mut found: Vec<Found> = sizes
        .iter()
        .filter_map(|(probe, tried)| Some(extent(Extent::from_word(probe)?, tried)))
        .collect();
    let methods = methods(trial);
    if !methods.is_empty() {
        let names = |fate: Fate| -> Vec<String> {
            let those = methods.iter().filter(|(_, its)| **its == fate);
            those.map(|(name, _)| (*name).to_owned()).collect()
        };
        let (served, open) = (names(Fate::Served).len() as u64, names(Fate::Open));
        let finding = Finding::Methods { served, missing: names(Fate::Refused) };
        let (sure, evidence) = match open.len() {
            0 => (Confidence::High, Vec::new()),
            _ => {
                let text = format!("nothing is known of {}: calls failed", open.join(", "));
                (Confidence::Medium, vec![text])
            }
        };
        found.push(Found::new(finding, sure, evidence));
    }
    if !sockets.is_empty() {
        let is_served = |what: &str| sockets.contains(&(what, Fate::Served));
        let evidence = match (is_served("calls"), is_served("subscriptions")) {
            (true, true) => "it subscribes to new blocks",
            (true, false) => "it does not subscribe to new blocks",
            (false, _) => "tried where the target is, or at the URL that was given",
        };
        let finding = Finding::WebSocket { served: is_served("calls") };
        found.push(Found::new(finding, Confidence::High, vec![evidence.to_owned()]));
    }
    found
}

/// One try of a size.
struct Tried<'a> {
    size: u64,
    fate: Fate,
    played: &'a Played<'a>,
}

fn extent(what: Extent, tried: &[Tried<'_>]) -> Found {
    let of = |fate: Fate| tried.iter().filter(move |it| it.fate == fate);
    let refused_at = of(Fate::Refused).map(|it| it.size).min();
    let below = |it: &&Tried<'_>| refused_at.is_none_or(|at| it.size < at);
    let largest = of(Fate::Served).filter(below).max_by_key(|it| it.size);
    let again = of(Fate::Served).any(|it| refused_at.is_some_and(|at| it.size >= at));
    let whole = largest.is_some_and(|it| it.played.factor("whole").is_some());
    let mut evidence = vec![format!("{} sizes were tried", tried.len())];
    let mut sure = Confidence::High;
    if again {
        evidence.push("a larger size was served as well: it varies".to_owned());
        sure = Confidence::Low;
    }
    if let Some(open) = of(Fate::Open).next() {
        let class = open.played.calls.last().map_or("no answer", |call| call.class.as_str());
        if largest.is_none() && refused_at.is_none() {
            let about = what.about();
            return Found::cannot_tell(format!("{about} the first try failed ({class})"));
        }
        evidence.push(format!("{} failed in a way that says nothing of it: {class}", open.size));
        sure = Confidence::Low;
    }
    let up_to = largest.map(|it| it.size);
    Found::new(Finding::Reach { what, up_to, refused_at, whole }, sure, evidence)
}
