//! The method table: `data/methods.txt`, read once and looked up by name.
//!
//! The format of the file is explained at its top. It is part of the binary,
//! so a mistake in it is a bug found by the tests here, not a problem of users.

use std::collections::HashMap;
use std::sync::OnceLock;

use foldhash::fast::FixedState;

use crate::at_hash;
use crate::glob::MethodGlob;
use crate::method::{Access, CostClass, Effect, Finality, MethodIndex, MethodRow, StickyRole};
use crate::param::BlockParam;

/// The data file.
const STANDARD: &str = include_str!("../data/methods.txt");

/// How many rows an index can name.
const ROWS_MAX: usize = u16::MAX as usize;

/// All methods we know, and what we know of them.
#[derive(Debug)]
pub struct MethodTable {
    rows: Vec<MethodRow>,
    // The keys are constants, so no client can choose colliding ones: a fixed seed and the
    // fastest hash suffice.
    by_name: HashMap<&'static str, MethodIndex, FixedState>,
    /// Patterns over names in lower case, for methods that are not listed.
    patterns: Vec<(MethodGlob, Access)>,
}

impl MethodTable {
    /// The table in the binary.
    pub fn standard() -> &'static Self {
        static TABLE: OnceLock<MethodTable> = OnceLock::new();
        TABLE.get_or_init(|| {
            Self::parse(STANDARD).expect("the tests read the same file that is in the binary")
        })
    }

    /// The row of a method; the row for unknown methods when it is not listed.
    pub fn row(&self, name: &str) -> &MethodRow {
        let index = self.by_name.get(name).copied().unwrap_or(MethodIndex::UNKNOWN);
        &self.rows[index.get()]
    }

    /// All rows by index; the first is the row for unknown methods.
    pub fn rows(&self) -> &[MethodRow] {
        &self.rows
    }

    /// Which clients `method` is meant for, whose row is `row`. A method that is not listed has
    /// the access of the listed one that differs in case alone, or of the first pattern that
    /// matches its name in lower case: nodes exist that ignore case.
    pub fn access(&self, row: &MethodRow, method: &str) -> Access {
        if !row.is_unknown() {
            return row.access;
        }
        let is_same = |row: &&MethodRow| row.name.eq_ignore_ascii_case(method);
        if let Some(row) = self.rows[1..].iter().find(is_same) {
            return row.access;
        }
        let method = method.to_ascii_lowercase();
        let matching = self.patterns.iter().find(|(pattern, _)| pattern.matches(&method));
        matching.map_or(row.access, |(_, access)| *access)
    }

    /// The patterns over the names, in lower case, of methods that are not listed.
    pub fn patterns(&self) -> &[(MethodGlob, Access)] {
        &self.patterns
    }

    /// How many rows there are, the one for unknown methods included.
    #[expect(clippy::len_without_is_empty, reason = "there is always the row for unknown methods")]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Reads a table; the error says what is wrong with it, and where.
    fn parse(text: &'static str) -> Result<Self, String> {
        let mut table =
            Self { rows: Vec::new(), by_name: HashMap::default(), patterns: Vec::new() };
        let mut family = "";
        for (line, number) in text.lines().zip(1..) {
            let at_line = |problem| format!("method table, line {number}: {problem}");
            if let Some(heading) = line.strip_prefix("## ") {
                family = heading.trim();
                continue;
            }
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            match line.strip_prefix("pattern ") {
                Some(pattern) => table.add_pattern(pattern).map_err(at_line)?,
                None => table.add(family, line).map_err(at_line)?,
            }
        }
        if table.rows.first().is_none_or(|row| row.name != "*") {
            let problem = "the first row must be `*`, the row for unknown methods";
            return Err(format!("method table, line 1: {problem}"));
        }
        Ok(table)
    }

    fn add_pattern(&mut self, line: &str) -> Result<(), String> {
        let (pattern, access) =
            line.trim().split_once(char::is_whitespace).ok_or("a pattern without access")?;
        let (pattern, access) = (pattern.to_ascii_lowercase(), access.trim());
        let access = Access::from_word(access).ok_or_else(|| unknown("access", access))?;
        let glob = pattern.parse().map_err(|error| format!("`{pattern}`: {error}"))?;
        self.patterns.push((glob, access));
        Ok(())
    }

    fn add(&mut self, family: &'static str, line: &'static str) -> Result<(), String> {
        if family.is_empty() {
            return Err("a row before the first `## ` heading".to_owned());
        }
        if self.rows.len() == ROWS_MAX {
            return Err(format!("more than {ROWS_MAX} rows"));
        }
        let index = MethodIndex(self.rows.len() as u16);
        let row = row(family, index, line)?;
        if self.by_name.insert(row.name, index).is_some() {
            return Err(format!("`{}` is listed twice", row.name));
        }
        let before = self.rows.last().filter(|before| before.family == family);
        if let Some(before) = before.filter(|before| before.name > row.name) {
            return Err(format!("`{}` belongs before `{}`", row.name, before.name));
        }
        self.rows.push(row);
        Ok(())
    }
}

fn row(family: &'static str, index: MethodIndex, line: &'static str) -> Result<MethodRow, String> {
    let mut rest = line;
    let mut column = |what: &str| {
        let text = rest.trim_start();
        let (word, tail) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        rest = tail;
        if word.is_empty() { Err(format!("no {what}")) } else { Ok(word) }
    };
    let name = column("name")?;
    let (effect, sticky) = effect(column("effect")?)?;
    let block = column("block")?;
    let block = BlockParam::from_word(block).ok_or_else(|| unknown("block", block))?;
    let finality = column("finality")?;
    let finality = Finality::from_word(finality).ok_or_else(|| unknown("finality", finality))?;
    let idempotent = either(column("again")?, "yes", "no")?;
    let class = column("class")?;
    let class = CostClass::from_word(class).ok_or_else(|| unknown("class", class))?;
    let null_is_answer = either(column("null")?, "answer", "missing")?;
    let access = column("access")?;
    let access = Access::from_word(access).ok_or_else(|| unknown("access", access))?;
    let about = rest.trim();
    if about.is_empty() {
        return Err("no words about it".to_owned());
    }
    Ok(MethodRow {
        name,
        family,
        index,
        effect,
        sticky,
        block,
        finality,
        idempotent,
        class,
        null_is_answer,
        access,
        by_hash: at_hash::place(name),
        about,
    })
}

fn effect(word: &str) -> Result<(Effect, Option<StickyRole>), String> {
    let (effect, role) = match word.split_once(':') {
        Some((effect, role)) => {
            let role = StickyRole::from_word(role).ok_or_else(|| unknown("sticky role", role))?;
            (effect, Some(role))
        }
        None => (word, None),
    };
    let effect = Effect::from_word(effect).ok_or_else(|| unknown("effect", effect))?;
    if (effect == Effect::Sticky) == role.is_some() {
        Ok((effect, role))
    } else {
        Err(format!("`{word}`: `sticky`, and only that, needs a role"))
    }
}

fn either(word: &str, yes: &str, no: &str) -> Result<bool, String> {
    match word {
        word if word == yes => Ok(true),
        word if word == no => Ok(false),
        word => Err(format!("`{word}` is neither `{yes}` nor `{no}`")),
    }
}

fn unknown(what: &str, word: &str) -> String {
    format!("`{word}` is no {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(text: &'static str, message: &str) {
        let error = MethodTable::parse(text).map(|table| table.len()).unwrap_err();
        assert!(error.contains(message), "{error}");
    }

    #[test]
    fn the_standard_table_reads() {
        let table = MethodTable::parse(STANDARD).unwrap_or_else(|error| panic!("{error}"));
        assert!(table.len() > 400, "{} rows", table.len());
        for (index, row) in table.rows().iter().enumerate() {
            assert_eq!(row.index.get(), index);
            assert_eq!(table.row(row.name), row);
        }
    }

    #[test]
    fn a_family_is_in_one_place() {
        let mut families: Vec<_> =
            MethodTable::standard().rows().iter().map(|row| row.family).collect();
        families.dedup();
        let count = families.len();
        families.sort_unstable();
        families.dedup();
        assert_eq!(families.len(), count);
    }

    #[test]
    fn unknown_methods_are_read_carefully() {
        let table = MethodTable::standard();
        for name in ["", "*", "eth_", "ETH_CALL", "eth_call ", "eth_somethingNew"] {
            let row = table.row(name);
            assert!(row.is_unknown(), "{name:?}");
            assert_eq!(row.effect, Effect::Read);
            assert_eq!(row.finality, Finality::Live);
            assert!(!row.idempotent && row.null_is_answer);
        }
        assert!(!table.row("eth_call").is_unknown());
    }

    /// Rules that hold whatever the method is.
    #[test]
    fn rows_do_not_contradict_themselves() {
        for row in &MethodTable::standard().rows()[1..] {
            let name = row.name;
            assert!(
                name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'),
                "{name}: odd character"
            );
            let changes = match row.effect {
                Effect::Write | Effect::Broadcast => true,
                Effect::Read
                | Effect::Subscribe
                | Effect::Filter
                | Effect::Sticky
                | Effect::Local => false,
            };
            assert_eq!(row.class == CostClass::Write, changes, "{name}: class and effect");
            if row.effect == Effect::Write {
                assert!(!row.idempotent, "{name}: a write may not be repeated");
            }
            // Asking elsewhere helps only where any upstream will do.
            match row.effect {
                Effect::Write | Effect::Subscribe | Effect::Filter | Effect::Sticky => {
                    assert!(row.null_is_answer, "{name}: no other upstream can be asked");
                    assert_eq!(row.finality, Finality::Live, "{name}: not reusable");
                }
                Effect::Broadcast => assert_eq!(row.finality, Finality::Live, "{name}"),
                Effect::Read | Effect::Local => {}
            }
            match row.finality {
                Finality::Block => {
                    assert_ne!(row.block, BlockParam::None, "{name}: final as which block?");
                }
                Finality::Inclusion => {
                    assert_eq!(row.block, BlockParam::None, "{name}: found by hash");
                }
                Finality::Fixed | Finality::Head | Finality::Live => {}
            }
            assert_eq!(BlockParam::from_word(row.block.to_string().leak()), Some(row.block));
        }
    }

    #[track_caller]
    fn access(method: &str, expected: Access) {
        let table = MethodTable::standard();
        assert_eq!(table.access(table.row(method), method), expected, "{method}");
    }

    #[test]
    fn what_is_meant_for_the_operator_is_not_public() {
        for method in ["admin_addPeer", "admin_nodeInfo", "engine_newPayloadV4", "miner_stop"] {
            access(method, Access::Admin);
        }
        for method in ["debug_setHead", "debug_startCPUProfile", "debug_chaindbCompact"] {
            access(method, Access::Admin);
        }
        for method in ["debug_standardTraceBlockToFile", "debug_getConfigValue", "clique_propose"] {
            access(method, Access::Admin);
        }
        for method in ["personal_unlockAccount", "eth_sign", "eth_sendTransaction"] {
            access(method, Access::Keys);
        }
        for method in ["anvil_setBalance", "hardhat_reset", "evm_mine", "tenderly_setCode"] {
            access(method, Access::Dev);
        }
    }

    #[test]
    fn what_reads_the_chain_is_public() {
        for method in ["eth_call", "eth_sendRawTransaction", "eth_accounts", "eth_sendBundle"] {
            access(method, Access::Public);
        }
        for method in ["debug_traceTransaction", "debug_gcStats", "clique_getSnapshot"] {
            access(method, Access::Public);
        }
        access("eth_somethingNew", Access::Public);
        access("tenderly_simulateTransaction", Access::Public);
    }

    #[test]
    fn names_that_are_not_listed_have_the_access_of_their_namespace() {
        access("admin_somethingNew", Access::Admin);
        access("debug_setSomethingNew", Access::Admin);
        access("debug_newProfileOfThreads", Access::Admin);
        access("debug_traceSomethingNew", Access::Public);
        access("personal_somethingNew", Access::Keys);
        access("klay_sendTransaction", Access::Keys);
        access("anvil_somethingNew", Access::Dev);
        access("ADMIN_ADDPEER", Access::Admin);
        access("Eth_SendTransaction", Access::Keys);
        access("ETH_CALL", Access::Public);
    }

    /// A write that any client may make is one of these: it is signed, or meant for a relay.
    #[test]
    fn public_writes_were_looked_at() {
        let kinds = ["Sending transactions", "Relays", "Account abstraction", "Mining"];
        let others = [
            "debug_batchSendRawTransaction",
            "auctioneer_submitAuctionTransaction",
            "qn_broadcastRawTransaction",
        ];
        for row in MethodTable::standard().rows() {
            if row.effect == Effect::Write && row.access == Access::Public {
                let is_known = kinds.contains(&row.family) || others.contains(&row.name);
                assert!(is_known, "{}: who may call it?", row.name);
            }
        }
    }

    #[test]
    fn bad_tables_say_where() {
        refused("", "line 1: the first row must be `*`");
        refused("* read - live no call answer public x", "line 1: a row before the first");
        refused("## A\n* read", "line 2: no block");
        refused("## A\n* reed - live no call answer public x", "`reed` is no effect");
        refused("## A\n* read: - live no call answer public x", "`` is no sticky role");
        refused("## A\n* sticky - live no call answer public x", "needs a role");
        refused("## A\n* read:use - live no call answer public x", "needs a role");
        refused("## A\n* read at:x live no call answer public x", "`at:x` is no block");
        refused("## A\n* read - life no call answer public x", "`life` is no finality");
        refused(
            "## A\n* read - live maybe call answer public x",
            "`maybe` is neither `yes` nor `no`",
        );
        refused("## A\n* read - live no dear answer public x", "`dear` is no class");
        refused(
            "## A\n* read - live no call yes public x",
            "`yes` is neither `answer` nor `missing`",
        );
        refused("## A\n* read - live no call answer", "line 2: no access");
        refused("## A\n* read - live no call answer all x", "`all` is no access");
        refused("## A\n* read - live no call answer public", "line 2: no words");
        refused("## A\npattern a_*", "line 2: a pattern without access");
        refused("## A\npattern a_* all", "line 2: `all` is no access");
        refused("## A\npattern a_? admin", "line 2: `a_?`: '?' at character 3");
        refused(
            "## A\n* read - live no call answer public x\n\n# y\nb read - live no call answer public x\na read - live no call answer public x",
            "line 6: `a` belongs before `b`",
        );
        refused(
            "## A\n* read - live no call answer public x\n## B\n* read - live no call answer public x",
            "line 4: `*` is listed twice",
        );
    }
}
