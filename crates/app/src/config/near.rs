//! Which known word was probably meant: for hints on unknown keys, ids and values.
//!
//! Compares without case, `-` and `_` first (`lagBlocksMax` is `lag_blocks_max`),
//! then the words other proxies use, then by edit distance.

/// What other proxies call our keys. Only suggested where the key is allowed.
const ALSO_CALLED: &[(&str, &str)] = &[
    ("address", "listen"),
    ("backend", "upstreams"),
    ("backends", "upstreams"),
    ("bind", "listen"),
    ("cacert", "ca_file"),
    ("cert", "certificate"),
    ("certfile", "certificate"),
    ("chain", "chains"),
    ("chainid", "id"),
    ("concurrency", "in_flight"),
    ("endpoint", "url"),
    ("endpoints", "upstreams"),
    ("group", "tier"),
    ("host", "listen"),
    ("http", "url"),
    ("https", "tls"),
    ("keyfile", "key"),
    ("maxattempts", "max"),
    ("maxlag", "lag_blocks_max"),
    ("metrics", "admin"),
    ("name", "id"),
    ("network", "chains"),
    ("networks", "chains"),
    ("nodes", "upstreams"),
    ("permissions", "methods"),
    ("port", "listen"),
    ("priority", "tier"),
    ("providers", "upstreams"),
    ("ratelimit", "budget"),
    ("retries", "attempts"),
    ("retry", "attempts"),
    ("rpc", "url"),
    ("rpcs", "upstreams"),
    ("rpcurl", "url"),
    ("rps", "calls_per_second"),
    ("server", "listen"),
    ("ssl", "tls"),
    ("tags", "labels"),
    ("threads", "workers"),
    ("timeout", "timeouts"),
    ("token", "bearer"),
    ("username", "user"),
    ("vendor", "provider"),
    ("websocket", "ws"),
    ("wsurl", "ws"),
];

/// Longer words are not compared: the work is their product.
const WORD_LEN_MAX: usize = 64;

/// The allowed word that `word` was probably meant to be.
pub(super) fn near<'a>(word: &str, allowed: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    closest(word, allowed).map(|(_, candidate)| candidate)
}

/// A hint at the allowed word that was probably meant, or else another one.
pub(super) fn suggestion<'a>(
    word: &str,
    allowed: impl IntoIterator<Item = &'a str>,
    otherwise: impl FnOnce() -> String,
) -> String {
    near(word, allowed).map_or_else(otherwise, |meant| format!("did you mean `{meant}`?"))
}

/// The allowed word that `word` is but for a slip: one edit, its case, `-` and `_`.
pub(super) fn slip<'a>(word: &str, allowed: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    closest(word, allowed).filter(|(distance, _)| *distance <= 1).map(|(_, candidate)| candidate)
}

fn closest<'a>(word: &str, allowed: impl IntoIterator<Item = &'a str>) -> Option<(usize, &'a str)> {
    if word.is_empty() || word.len() > WORD_LEN_MAX {
        return None;
    }
    let plain = bare(word);
    let called = ALSO_CALLED.iter().find(|(other, _)| *other == plain).map(|(_, ours)| *ours);
    allowed
        .into_iter()
        .filter(|candidate| candidate.len() <= WORD_LEN_MAX)
        .filter_map(|candidate| {
            // Edits are letters that are added, left out or replaced, and neighbours that are swapped.
            let distance = match called == Some(candidate) {
                true => 0,
                false => strsim::osa_distance(&plain, &bare(candidate)),
            };
            let distance_max = (plain.len().max(candidate.len()) / 3).max(1);
            // A word of which nothing is left is another word, not a misspelling.
            (distance <= distance_max && distance < candidate.len())
                .then_some((distance, candidate))
        })
        .min_by_key(|(distance, _)| *distance)
}

fn bare(word: &str) -> String {
    word.chars().filter(|c| !matches!(c, '-' | '_')).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_that_was_meant() {
        let keys = ["id", "url", "ws", "upstreams", "chains", "lag_blocks_max", "labels", "listen"];
        for (word, meant) in [
            ("upstream", Some("upstreams")),
            ("upstraems", Some("upstreams")),
            ("lag-blocks-max", Some("lag_blocks_max")),
            ("lagBlocksMax", Some("lag_blocks_max")),
            ("URL", Some("url")),
            ("chainId", Some("id")),
            ("backends", Some("upstreams")),
            ("lable", Some("labels")),
            ("w", Some("ws")),
            ("colour", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(near(word, keys), meant, "{word}");
        }
    }
}
