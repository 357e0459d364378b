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
    asked(trial).into_iter().map(|(name, fates)| (name, settled(&fates))).collect()
}

/// What became of each method, each time that it was tried.
fn asked<'a>(trial: &Trial<'a>) -> BTreeMap<&'a str, Vec<Fate>> {
    let mut asked: BTreeMap<&str, Vec<Fate>> = BTreeMap::new();
    for played in trial.played.iter().filter(|played| played.factor("probe") == Some("method")) {
        let name = played.cell.factors.get("value").map(String::as_str);
        if let (Some(name), Some(fate)) = (name, Fate::of(played)) {
            asked.entry(name).or_default().push(fate);
        }
    }
    asked
}

/// A method is missing where it was refused twice: of several nodes behind one URL one may not
/// have it.
fn settled(fates: &[Fate]) -> Fate {
    match fates {
        _ if fates.contains(&Fate::Served) => Fate::Served,
        [Fate::Refused, Fate::Refused, ..] => Fate::Refused,
        _ => Fate::Open,
    }
}

/// What was under way when the account was refused, and in which class, where nothing was tried
/// after that.
fn barred<'a>(trial: &'a Trial<'_>) -> Option<(&'a str, &'a str)> {
    let last = trial.played.last()?;
    let class = last.calls.last().map_or("refused", |call| call.class.as_str());
    let is_barred = last.factor("probe") == Some("account");
    last.factor("value").filter(|_| is_barred).map(|probe| (probe, class))
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
            ("method" | "account", _) => {}
            ("websocket", _) => sockets.push((value, fate)),
            (probe, Ok(size)) => sizes.entry(probe).or_default().push(Tried { size, fate, played }),
            (_, Err(_)) => {}
        }
    }
    let barred = barred(trial);
    let is_cut = |what: &str| barred.is_some_and(|(probe, _)| probe == what);
    let mut found: Vec<Found> = sizes
        .iter()
        .filter_map(|(probe, tried)| {
            let found = extent(Extent::from_word(probe)?, tried);
            Some(if is_cut(probe) { cut(found) } else { found })
        })
        .collect();
    let asked = asked(trial);
    if !asked.is_empty() {
        let its = served(&asked);
        found.push(if is_cut("method") { cut(its) } else { its });
    }
    found.extend(socket(&sockets));
    if let Some((probe, class)) = barred {
        let why = format!("the account was refused at `{probe}` ({class}): what was left is open");
        found.push(Found::cannot_tell(why));
    }
    found
}

/// What was found before the account was refused in the middle of it.
fn cut(mut found: Found) -> Found {
    found.evidence.push("the account was refused before all was tried".to_owned());
    found.confidence = found.confidence.min(Confidence::Low);
    found
}

fn served(asked: &BTreeMap<&str, Vec<Fate>>) -> Found {
    let those = |is: &dyn Fn(&[Fate]) -> bool| -> Vec<String> {
        let those = asked.iter().filter(|(_, fates)| is(fates));
        those.map(|(name, _)| (*name).to_owned()).collect()
    };
    let missing = those(&|fates| settled(fates) == Fate::Refused);
    let open = those(&|fates| settled(fates) == Fate::Open);
    let varies = |fates: &[Fate]| fates.contains(&Fate::Served) && fates.contains(&Fate::Refused);
    let varying = those(&varies);
    if open.len() == asked.len() {
        return Found::cannot_tell(format!(
            "no method was answered, of {} that were tried",
            open.len()
        ));
    }
    let count = (asked.len() - missing.len() - open.len()) as u64;
    let mut evidence = Vec::new();
    let mut sure = Confidence::High;
    if !open.is_empty() {
        let why = "calls failed, or were refused once only";
        evidence.push(format!("nothing is known of {}: {why}", open.join(", ")));
        sure = Confidence::Medium;
    }
    if !varying.is_empty() {
        evidence.push(format!("refused once and served once: {}", varying.join(", ")));
    }
    Found::new(Finding::Methods { served: count, missing }, sure, evidence)
}

fn socket(sockets: &[(&str, Fate)]) -> Option<Found> {
    let fate = |what: &str| sockets.iter().find(|(tried, _)| *tried == what).map(|(_, fate)| *fate);
    let evidence = match (fate("calls")?, fate("subscriptions")) {
        (Fate::Open, _) => {
            return Some(Found::cannot_tell("a call over WebSocket failed in another way"));
        }
        (Fate::Served, Some(Fate::Served)) => "it subscribes to new blocks",
        (Fate::Served, Some(Fate::Refused)) => "it does not subscribe to new blocks",
        (Fate::Served, Some(Fate::Open) | None) => "whether it tells of new blocks is not known",
        (Fate::Refused, _) => "tried where the target is, or at the URL that was given",
    };
    let finding = Finding::WebSocket { served: fate("calls") == Some(Fate::Served) };
    Some(Found::new(finding, Confidence::High, vec![evidence.to_owned()]))
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
