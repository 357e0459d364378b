//! What patterns over methods say: misspelt ones, and those in the wrong list.

use wellhead_eth::{Access, MethodGlob, MethodTable};

use super::super::chain::ChainMethods;
use super::super::near::suggestion;
use super::super::problem::SettingPath;
use super::Checker;

/// Whether all methods that `glob` matches are (or none is) meant for every client; `None`
/// where it matches no method that is listed.
fn are_public(glob: &MethodGlob) -> Option<(bool, bool)> {
    let rows = &MethodTable::standard().rows()[1..];
    let mut matched = rows.iter().filter(|row| glob.matches(row.name)).peekable();
    matched.peek()?;
    let (public, others): (Vec<_>, Vec<_>) = matched.partition(|row| row.access == Access::Public);
    Some((others.is_empty(), public.is_empty()))
}

/// Whether everything that `inner` matches, `outer` matches too. Says no when unsure.
fn covers(outer: &MethodGlob, inner: &MethodGlob) -> bool {
    // A star in `inner` is then matched as a character, which only a star of `outer` does.
    outer == inner || outer.matches(inner.as_str())
}

impl Checker<'_> {
    /// What stands in the lists of a chain: `allow` says nothing of dangerous methods, and
    /// `dangerous` nothing of others.
    pub(super) fn chain_methods(&mut self, path: &SettingPath, methods: &ChainMethods) {
        let ChainMethods { allow, deny, dangerous } = methods;
        self.methods(path, allow, deny);
        self.globs(&path.key("dangerous"), dangerous);
        for (index, glob) in allow.iter().enumerate() {
            let item = path.key("allow").item(index);
            if are_public(glob).is_some_and(|(_, none)| none) && !self.touched(&item) {
                let message = format!("`{glob}` is a dangerous method");
                self.error(&item, message, "write it under `dangerous`, where it is allowed");
            }
        }
        for (index, glob) in dangerous.iter().enumerate() {
            let item = path.key("dangerous").item(index);
            if self.touched(&item) {
                continue;
            }
            if are_public(glob).is_some_and(|(all, _)| all) {
                let message = format!("`{glob}` is not dangerous and needs no entry here");
                self.warning(&item, message, "remove it");
            }
            if deny.contains(glob) {
                let message = format!("`{glob}` is also under `deny`");
                self.warning(&item, message, "`deny` wins: remove one of them");
            }
        }
    }

    pub(super) fn methods(
        &mut self,
        path: &SettingPath,
        allow: &[MethodGlob],
        deny: &[MethodGlob],
    ) {
        self.globs(&path.key("allow"), allow);
        self.globs(&path.key("deny"), deny);
        for (index, glob) in deny.iter().enumerate() {
            let item = path.key("deny").item(index);
            if allow.contains(glob) && !self.touched(&item) {
                let message = format!("`{glob}` is also under `allow`");
                self.warning(&item, message, "`deny` wins: remove one of them");
            }
        }
    }

    /// The methods that a rule is for, of which it must have some.
    pub(super) fn methods_of(
        &mut self,
        rule: &SettingPath,
        methods: &[MethodGlob],
        without: &str,
        example: &str,
    ) {
        let path = rule.key("methods");
        self.globs(&path, methods);
        if methods.is_empty() {
            self.error(&path, without, format!("name some: `methods: [{example}]`"));
        }
    }

    /// Warns of a rule that is never used, because `earlier` patterns match all its methods.
    pub(super) fn unused_rule<'g>(
        &mut self,
        rule: &SettingPath,
        methods: &[MethodGlob],
        earlier: impl Iterator<Item = &'g MethodGlob>,
        message: &str,
    ) {
        let earlier: Vec<_> = earlier.collect();
        let is_covered = |glob: &MethodGlob| earlier.iter().any(|other| covers(other, glob));
        if !methods.is_empty() && methods.iter().all(is_covered) {
            self.warning(rule, message, "move it up, or remove it");
        }
    }

    /// Warns of patterns that match nothing we know: probably misspelt.
    pub(super) fn globs(&mut self, path: &SettingPath, globs: &[MethodGlob]) {
        let rows = MethodTable::standard().rows();
        for (index, glob) in globs.iter().enumerate() {
            let item = path.item(index);
            let known = rows.iter().any(|row| !row.is_unknown() && glob.matches(row.name));
            if known || self.touched(&item) {
                continue;
            }
            let names = rows.iter().filter(|row| !row.is_unknown()).map(|row| row.name);
            let hint = suggestion(glob.as_str(), names, || {
                "fine for a method of your own; check the spelling otherwise".to_owned()
            });
            let message = format!("`{glob}` matches no method that wellhead knows");
            self.warning(&item, message, hint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_pattern_covers_another() {
        for (outer, inner, yes) in [
            ("*", "eth_call", true),
            ("*", "debug_*", true),
            ("debug_*", "debug_trace*", true),
            ("debug_trace*", "debug_*", false),
            ("eth_call", "eth_call", true),
            ("eth_call", "*", false),
            ("*_call", "eth_*", false),
        ] {
            let glob = |text: &str| text.parse::<MethodGlob>().expect("a good pattern");
            assert_eq!(covers(&glob(outer), &glob(inner)), yes, "{outer} {inner}");
        }
    }
}
