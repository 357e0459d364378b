//! Errors that no rule knows, counted by their code so that rules can be made from data.
//!
//! Numbers only: what an upstream says in words may be a contract's or hold a key.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use wellhead_jsonrpc::scan_error;

use crate::verdict::Payload;

/// The number of codes of an upstream that are counted separately, the first ones; all others
/// are counted together, so that the label set cannot grow.
pub(crate) const UNKNOWN_CODES_MAX: usize = 16;

/// How often one upstream said something that no rule knows.
#[derive(Debug, Default)]
pub(crate) struct Unknowns {
    codes: Mutex<Vec<(i64, u64)>>,
    others: AtomicU64,
}

impl Unknowns {
    pub(crate) fn count(&self, payload: &Payload) {
        let code = match payload {
            Payload::Error(raw) => scan_error(raw).map(|error| error.code),
            Payload::Result(_) | Payload::None { .. } => None,
        };
        let Some(code) = code else {
            self.others.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let mut codes = self.codes.lock();
        match codes.iter().position(|(known, _)| *known == code) {
            Some(place) => codes[place].1 += 1,
            None if codes.len() < UNKNOWN_CODES_MAX => codes.push((code, 1)),
            None => drop(self.others.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// How often by code, and how often with a code that has no place of its own.
    pub(crate) fn told(&self) -> (Vec<(i64, u64)>, u64) {
        (self.codes.lock().clone(), self.others.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_counted_apart_up_to_a_bound() {
        let unknowns = Unknowns::default();
        let say = |code: i64| {
            let error = format!(r#"{{"code":{code},"message":"odd"}}"#);
            unknowns.count(&Payload::Error(error.into()));
        };
        say(-32042);
        say(-32042);
        (0..100).for_each(say);
        let (codes, others) = unknowns.told();
        assert_eq!(codes.len(), UNKNOWN_CODES_MAX);
        assert_eq!(codes[0], (-32042, 2));
        assert_eq!(codes[15], (14, 1));
        assert_eq!(others, 85);
        unknowns.count(&Payload::None { detail: String::new() });
        assert_eq!(unknowns.told().1, 86);
    }
}
