//! Which methods may be called, by name and by what they do.
//!
//! Decided once for each row of the method table, so that a call costs the test of one bit however many
//! patterns there are. Only methods that are not in the table are matched by name.

use wellhead_eth::{Access, MethodGlob, MethodRow, MethodTable};

use crate::effect_class::EffectClass;
use crate::right_denied::RightDenied;

/// Which methods may be called.
#[derive(Debug)]
pub(crate) struct MethodRights {
    allow: Option<Box<[MethodGlob]>>,
    deny: Box<[MethodGlob]>,
    /// Whether each class of effect is allowed; `None` if all are.
    effects: Option<[bool; EffectClass::ALL.len()]>,
    /// One bit for each row of the method table.
    rows: Box<[u64]>,
}

impl MethodRights {
    /// `None` where nothing is limited.
    pub(crate) fn new(
        allow: Option<Vec<MethodGlob>>,
        deny: Vec<MethodGlob>,
        effects: Option<Vec<EffectClass>>,
    ) -> Option<Self> {
        if allow.is_none() && deny.is_empty() && effects.is_none() {
            return None;
        }
        let effects =
            effects.map(|allowed| EffectClass::ALL.map(|effect| allowed.contains(&effect)));
        let rows = Box::default();
        let mut rights = Self { allow: allow.map(Into::into), deny: deny.into(), effects, rows };
        let table = MethodTable::standard();
        let mut bits = vec![0_u64; table.len().div_ceil(64)];
        for row in table.rows().iter().filter(|row| rights.judge(row, row.name).is_ok()) {
            let index = row.index.get();
            bits[index / 64] |= 1 << (index % 64);
        }
        rights.rows = bits.into();
        Some(rights)
    }

    /// Whether the method `name`, whose row is `row`, may be called.
    pub(crate) fn check(&self, row: &MethodRow, name: &str) -> Result<(), RightDenied> {
        let index = row.index.get();
        let is_allowed =
            self.rows.get(index / 64).is_some_and(|bits| bits >> (index % 64) & 1 == 1);
        if is_allowed && !row.is_unknown() { Ok(()) } else { self.judge(row, name) }
    }

    fn judge(&self, row: &MethodRow, name: &str) -> Result<(), RightDenied> {
        // Some nodes ignore case: `Debug_traceBlock` must not pass where `debug_*` is denied.
        if self.deny.iter().any(|glob| glob.matches_ignoring_case(name)) {
            return Err(RightDenied::Method);
        }
        if let Some(allow) = &self.allow
            && !allow.iter().any(|glob| glob.matches(name))
        {
            return Err(RightDenied::Method);
        }
        let Some(effects) = self.effects else { return Ok(()) };
        let may = |effect: EffectClass| match effects[effect as usize] {
            true => Ok(()),
            false => Err(RightDenied::Effect { effect }),
        };
        if MethodTable::standard().access(row, name) != Access::Public {
            may(EffectClass::Admin)?;
        }
        // What an unknown method does is not known: it may change something.
        may(if row.is_unknown() { EffectClass::Write } else { EffectClass::of(row) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn globs(text: &str) -> Vec<MethodGlob> {
        text.split_whitespace().map(|glob| glob.parse().unwrap()).collect()
    }

    /// `allow` and `effects` of `-` are left out.
    #[track_caller]
    fn check([allow, deny, effects]: [&str; 3], yes: &str, no: &str) {
        let words = effects.split_whitespace();
        let classes = words.map(EffectClass::from_word).collect::<Option<Vec<_>>>();
        let effects = if effects == "-" { None } else { Some(classes.expect("known words")) };
        let allow = (allow != "-").then(|| globs(allow));
        let rights = MethodRights::new(allow, globs(deny), effects).expect("some limit");
        let may = |name: &str| rights.check(MethodTable::standard().row(name), name);
        for name in yes.split_whitespace() {
            assert_eq!(may(name), Ok(()), "{name}");
        }
        for name in no.split_whitespace() {
            assert!(may(name).is_err(), "{name}");
        }
    }

    #[test]
    fn by_name() {
        check(["eth_*", "", "-"], "eth_call eth_noSuchMethod", "net_version Eth_call debug_x");
        check(["eth_* net_version", "eth_get*", "-"], "eth_call net_version", "eth_getLogs");
        check(
            ["-", "debug_* trace_*", "-"],
            "eth_call foo",
            "debug_traceBlock DEBUG_traceBlock trace_x",
        );
        check(["*", "*", "-"], "", "eth_call foo");
    }

    #[test]
    fn by_effect() {
        let reads = "eth_call eth_chainId eth_getLogs eth_newFilter eth_getFilterChanges";
        check(
            ["-", "", "read"],
            reads,
            "eth_sendRawTransaction eth_subscribe eth_sendTransaction admin_peers foo",
        );
        check(["-", "", "read broadcast"], "eth_call eth_sendRawTransaction", "eth_subscribe");
        check(["-", "", "subscribe"], "eth_subscribe eth_unsubscribe", "eth_call admin_subscribe");
        check(["-", "", "read admin"], "admin_peers eth_call", "debug_setHead");
        check(["-", "", "write"], "foo", "debug_setHead admin_foo eth_call");
        check(["-", "", "write admin"], "debug_setHead admin_foo", "");
        check(["eth_*", "eth_call", "read"], "eth_getLogs", "eth_call eth_sendRawTransaction");
    }

    #[test]
    fn a_refusal_says_what_is_missing() {
        let rights = MethodRights::new(None, globs("eth_call"), Some(vec![EffectClass::Read]));
        let rights = rights.expect("some limit");
        let why = |name: &str| rights.check(MethodTable::standard().row(name), name).unwrap_err();
        assert_eq!(why("eth_call"), RightDenied::Method);
        assert_eq!(why("eth_subscribe"), RightDenied::Effect { effect: EffectClass::Subscribe });
        assert_eq!(why("admin_peers"), RightDenied::Effect { effect: EffectClass::Admin });
    }

    #[test]
    fn nothing_limited_costs_nothing() {
        assert!(MethodRights::new(None, Vec::new(), None).is_none());
    }

    #[test]
    fn the_bits_say_what_the_patterns_say() {
        let rights = MethodRights::new(Some(globs("eth_* *_trace*")), globs("*ByHash"), None);
        let rights = rights.expect("some limit");
        for row in &MethodTable::standard().rows()[1..] {
            assert_eq!(rights.check(row, row.name), rights.judge(row, row.name), "{}", row.name);
            let is_set = rights.rows[row.index.get() / 64] >> (row.index.get() % 64) & 1 == 1;
            assert_eq!(is_set, rights.judge(row, row.name).is_ok(), "{}", row.name);
        }
    }
}
