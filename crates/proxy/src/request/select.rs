//! Which upstreams a client selects: `POST /ethereum?archive=true`.
//!
//! Each key of the query is a label of the settings, and an upstream must have all of
//! them. `archive=true` is always allowed: if no upstream has such a label, it selects the upstreams
//! that are not known to lack old blocks, by kind of data. A selection never widens
//! what `routes` and `methods` allow. A key or a value that no upstream has is
//! refused, because the client would otherwise mistake another answer for the one that it selected.
//!
//! Requests with different selections share neither cached answers nor calls in flight:
//! a `null`, an empty list or a trace may depend on the upstream.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Instant;

use wellhead_chain::View;
use wellhead_eth::{Data, MethodRow};
use wellhead_route::Roster;
use wellhead_upstream::{Upstream, UpstreamSet};

/// A query names at most this many labels.
const PAIRS_MAX: usize = 8;
/// So much is repeated of a client's own words, and of what is known.
const WORD_CHARS_MAX: usize = 64;
const LISTED_MAX: usize = 16;

/// The label that has a meaning even if no upstream has it.
const ARCHIVE: &str = "archive";
/// What clients bring along that were made for a provider's URL.
const CREDENTIALS: [&str; 8] =
    ["apikey", "api_key", "api-key", "key", "token", "access_token", "auth", "secret"];
/// What a key without a value means.
const YES: &str = "true";

/// What a request selects upstreams by.
#[derive(Debug)]
pub(crate) struct Selection {
    /// As one would write it, the same for all that mean the same: `archive=true&region=eu`.
    pub(crate) words: String,
    picked: UpstreamSet,
    /// Only those that are not known to lack old blocks.
    by_history: bool,
}

impl Selection {
    /// Reads the pairs of a query, decoded; `None` for an empty one. `Err` says in words what
    /// is wrong with it.
    pub(crate) fn read<'a>(
        pairs: &'a [(impl AsRef<str>, impl AsRef<str>)],
        roster: &Roster,
    ) -> Result<Option<Box<Self>>, String> {
        if pairs.is_empty() {
            return Ok(None);
        }
        if pairs.len() > PAIRS_MAX {
            return Err(format!("the query selects by more than {PAIRS_MAX} labels"));
        }
        let meant = |value: &'a str| if value.is_empty() { YES } else { value };
        let each = pairs.iter().map(|(key, value)| (key.as_ref(), meant(value.as_ref())));
        let pairs: BTreeSet<(&str, &str)> = each.collect();
        let mut selection = Self {
            words: String::new(),
            picked: roster.upstreams().iter().map(|upstream| upstream.slot()).collect(),
            by_history: false,
        };
        for (key, value) in pairs {
            selection.add(key, value, roster)?;
        }
        if selection.picked.is_empty() {
            let words = cut(&selection.words);
            return Err(format!("no upstream of this chain carries all of `{words}`"));
        }
        Ok(Some(Box::new(selection)))
    }

    fn add(&mut self, key: &str, value: &str, roster: &Roster) -> Result<(), String> {
        let values: BTreeSet<&str> =
            roster.upstreams().iter().filter_map(|upstream| label(upstream, key)).collect();
        if values.contains(value) {
            let carry = roster.upstreams().iter().filter(|it| label(it, key) == Some(value));
            self.picked = self.picked.and(carry.map(|upstream| upstream.slot()).collect());
        } else if !values.is_empty() {
            let known = listed(values);
            let (key, value) = (cut(key), cut(value));
            return Err(format!("no upstream has `{key}={value}`; its values are {known}"));
        } else if key != ARCHIVE {
            let labels = roster.upstreams().iter().flat_map(|it| it.identity().labels.keys());
            let known = labels.map(String::as_str).chain([ARCHIVE]).collect();
            let (key, known) = (cut(key), listed(known));
            if CREDENTIALS.iter().any(|name| name.eq_ignore_ascii_case(&key)) {
                return Err(format!(
                    "wellhead takes no credential in the query: remove `{key}=...`; \
                     upstreams are selected by {known}"
                ));
            }
            return Err(format!(
                "unknown key `{key}` in the query; upstreams are selected by {known}"
            ));
        } else if value == YES {
            self.by_history = true;
        } else {
            let value = cut(value);
            return Err(format!(
                "no upstream carries the label `{ARCHIVE}`: `{ARCHIVE}={value}` selects none, \
                 only `{ARCHIVE}={YES}` can be said"
            ));
        }
        let and = if self.words.is_empty() { "" } else { "&" };
        // Writing to a String cannot fail.
        let _ = write!(self.words, "{and}{key}={value}");
        Ok(())
    }

    /// Those of `eligible` that are selected for calls of `row`, as far as is known now.
    pub(crate) fn narrow(
        &self,
        eligible: UpstreamSet,
        row: &MethodRow,
        roster: &Roster,
        view: &View,
        now: Instant,
    ) -> UpstreamSet {
        let picked = eligible.and(self.picked);
        let (true, Some(data)) = (self.by_history, Data::of(row.class)) else { return picked };
        let has_all = |upstream: &&Arc<Upstream>| {
            let slot = upstream.slot();
            let head = view.head(slot).map(|head| head.number);
            picked.contains(slot) && upstream.oldest(data, head, now).is_none_or(|it| it.0 == 0)
        };
        roster.upstreams().iter().filter(has_all).map(|upstream| upstream.slot()).collect()
    }
}

fn label<'a>(upstream: &'a Upstream, key: &str) -> Option<&'a str> {
    upstream.identity().labels.get(key).map(String::as_str)
}

/// The beginning of a word that a client wrote, which may be a key in the wrong place.
fn cut(word: &str) -> String {
    wellhead_access::mask_keys(word).chars().take(WORD_CHARS_MAX).collect()
}

fn listed(words: BTreeSet<&str>) -> String {
    let more = if words.len() > LISTED_MAX { ", ..." } else { "" };
    let words = words.into_iter().take(LISTED_MAX).map(|word| format!("`{}`", cut(word)));
    format!("{}{more}", words.collect::<Vec<_>>().join(", "))
}
