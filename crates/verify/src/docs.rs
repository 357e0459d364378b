//! The page `docs/verify.md`, written from the tables of checks and methods.
//!
//! Regenerate it with `cargo xtask docs`. A test fails while it is stale.

use std::fmt::Write as _;

use crate::finding::{Check, Level};
use crate::method::{Kind, METHODS};
use crate::{CHEAP_BYTES_MAX, FULL_BYTES_MAX, SENDERS_MAX};

const INTRODUCTION: &str = "\
# Verifying answers

<!-- Generated from crates/verify by `cargo xtask docs`; edit the sources. -->

Answers of upstreams may be looked at before anybody relies on them. By default those of
upstreams of others are, at the level `cheap`, and those of your own are not. A level that is set
holds for all upstreams of the chain:

```yaml
chains:
  ethereum:
    verify:
      level: cheap
      levels:
        - { methods: [eth_getBlockReceipts, eth_getBlockBy*], level: full }
```

**Which level.** Upstreams of others are those of a [provider](providers.md) that wellhead knows, and those at
an `https://` URL with a public name or address. Your own are all others: on this machine, at private
addresses, under bare names or names of a cluster, and those without TLS. `wellhead check` shows for
each upstream what holds. For upstreams of others `cheap` is the default: it finds the mix-ups that happen, an answer
to another call, another block or a part of one. It costs less than 3 % of the CPU of a small call
([performance.md](performance.md)), but about 2 µs for a header and up to a millisecond for a large
block, so that it is `off` for upstreams that you run yourself. Set `level: off` to turn it off
for all. A level for some methods (`levels`) holds for all upstreams. Take `full` where money hangs on single answers, best for the methods
by which you read them.

## Levels

| level | what is done |
| --- | --- |
| off | nothing |
| cheap | the answer is read once and compared with the call and with itself |
| full | the same, and what can be recomputed is: hashes, tries, blooms, signatures, proofs |

A finding is **sound** when every check of the level passed that applies to what the
answer contains, **void** when one failed, and **not checked** when nothing was wrong but
something stood in the way: a header that is not known, a transaction type or header
field of a later fork, a transaction that nobody signed, parameters that can be read in
two ways, too many bytes.

**Void is certain.** Where a chain's own rules could explain a difference, it is not
checked instead. Hashes, roots, blooms, gas, proofs, senders and chain ids are void only
on chains that are known to follow Ethereum's rules: its public networks, and those of
which `ethereum: true` says so. Rollups and sidechains add transactions without a signature,
receipts that no root covers, or a withdrawals root that is something else.

**Sound is not the truth.** The level cheap believes an answer that agrees with itself. The
level full ties a block to its hash, but whether that hash is on the chain is decided by
comparing heads. Not looked at at any level: `size`, `totalDifficulty`, `gasPrice` of a
mined transaction with dynamic fees, `effectiveGasPrice`, `contractAddress`, `blockTimestamp`,
`removed`, and which logs are missing from an answer over several blocks. A block with hashes
instead of whole transactions has its header proven, not its list.

**Logs of one block.** Where `eth_getLogs` is looked at at `full`, an answer with the logs of a single
block (`blockHash`, or `fromBlock` equal to `toBlock`) is also compared with the block's receipts, so
that none is missing: upstreams are asked for the header by its hash and for
`eth_getBlockReceipts`, and both are recomputed. An answer that differs is not told; the client gets
the logs of the receipts, and the answer is shown and counted as void (check `complete`), without
a loss of health. That is at most two more calls for each such answer, within `attempts.max` each and 5 s
in all; one when the header is among the last 256; none but that of the header when its bloom excludes the
filter. Where the block, its header or its receipts cannot be had or recomputed, the answer
is told as it came. Not compared: ranges of more than one block, searches that are divided, answers that
several upstreams agreed on, and those of chains that are not known to follow Ethereum's rules.

**What becomes of a void answer.** Nobody gets it, and it is not kept. It counts as a failure of its
upstream, like an error of it, and the next one is asked within `attempts.max`. When nobody gives a
sound answer the client is told so, with the check that failed: HTTP 503, code -32002. The last
32 of a chain are shown in `/status` (`void_answers`): when, who, which call, which check and
why, and the first 2 KiB of the answer. The log tells of the same upstream and check once a
minute.

**What is not looked at.** Errors and `null`, whose meaning the [method table](methods.md)
says. Answers from the [cache](cache.md): they were when they came, at the level of then. What
wellhead asks on its own behalf. At `cheap`, answers longer than `limits.answer_buffer`
that flow to the client as they arrive; at `full` they are held whole up to 8 MiB instead.

**Where it is done.** What takes up to about a quarter of a millisecond where the answer came
in: 64 KiB at `cheap`, 4 KiB at `full`, for each exchange. All else on threads of its own, half
as many as there are cores, for all chains together. At most 64 answers wait for that, for a second each. Beyond
it an answer is looked at as at `cheap`, if it is no longer than 256 KiB, and counts as `busy`.

**What is needed.** Receipts and proofs are compared with their header when a block or header of
the same hash was found sound at `full` before, among the last 256 of the chain; else what
needs it is not checked. A proof names no block itself, so only calls that name the block by
its hash are compared. No answer is compared with what is believed of the chain, which changes in a
reorg.

**What is told.** `wellhead_verify_total` by chain, method and finding: `sound`, `void`,
`not_checked`, `flowed`, `busy`. `wellhead_verify_void_total` by upstream, method and check. The
trail says `sound-cheap` or `sound-full` of an answer that was found sound, and `void` with the check of one
that was not; `wellhead explain` says at which level a call would be.

An answer in which a key stands twice, or in other letters than its own (`HASH`), is void:
clients would not read the same.
";

/// Figures that were seen; they do not follow from the code.
const COST: &str = "\n\
## Cost

`cargo bench -p wellhead-verify`, best of 25 rounds on a virtual machine with two cores and
ten other tasks: read the proportions, and expect a quiet machine to be a few times quicker.

| answer | bytes | cheap | full |
| --- | --- | --- | --- |
| a number | 6 | 0.1 µs | 0.1 µs |
| a header | 1,659 | 2 µs | 13 µs |
| a receipt | 1,487 | 5 µs | 15 µs |
| a transaction | 1,257 | 3 µs | 0.23 ms |
| a block with 311 hashes | 23,657 | 31 µs | 76 µs |
| a block with 311 transactions | 237,196 | 1.0 ms | 127 ms |
| their receipts | 514,559 | 1.4 ms | 2.7 ms |
| their logs | 205,858 | 0.6 ms | 0.8 ms |

Nearly all of a whole block at full is its signatures, each of which takes a fifth to half a
millisecond.
";

/// The whole page.
pub fn verify_page() -> String {
    let mut page = INTRODUCTION.to_owned();
    checks(&mut page);
    methods(&mut page);
    limits(&mut page);
    page.push_str(COST);
    page
}

fn checks(page: &mut String) {
    page.push_str("\n## Checks\n\n| check | from level | |\n| --- | --- | --- |\n");
    for check in Check::ALL {
        line(page, format_args!("| `{check}` | {} | {} |", check.level(), check.about()));
    }
}

fn methods(page: &mut String) {
    page.push_str("\n## By method\n\nAll other methods: not checked.\n");
    page.push_str("\n| answer | methods | cheap | full, besides |\n| --- | --- | --- | --- |\n");
    for kind in Kind::ALL {
        let (what, checks) = kind.about();
        let names = METHODS.iter().filter(|(_, of)| of == kind).map(|(name, _)| *name);
        let at = |level| {
            words(checks.iter().filter(|check| check.level() == level).map(|check| check.word()))
        };
        let (cheap, full) = (at(Level::Cheap), at(Level::Full));
        line(page, format_args!("| {what} | {} | {cheap} | {full} |", words(names)));
    }
}

fn limits(page: &mut String) {
    let mib = |bytes: usize| bytes >> 20;
    page.push_str("\n## Bounds\n\n| bound | | beyond it |\n| --- | --- | --- |\n");
    let (cheap, full) = (mib(CHEAP_BYTES_MAX), mib(FULL_BYTES_MAX));
    line(page, format_args!("| answer, level cheap | {cheap} MiB | not checked |"));
    line(page, format_args!("| answer, level full | {full} MiB | as cheap, then not checked |"));
    line(
        page,
        format_args!(
            "| signatures an answer | {SENDERS_MAX} | those that follow are not checked |"
        ),
    );
}

fn words<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn line(page: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(page, "{line}").expect("writing to a string does not fail");
}

#[cfg(test)]
mod tests {
    use wellhead_eth::MethodTable;

    use super::*;

    #[test]
    fn methods_are_sorted_and_in_the_table() {
        assert!(METHODS.is_sorted_by(|one, other| one.0 < other.0));
        for (name, kind) in METHODS {
            assert!(!MethodTable::standard().row(name).is_unknown(), "{name}");
            assert!(Kind::ALL.contains(kind), "{name}");
        }
    }

    #[test]
    fn every_kind_has_a_method_and_every_check_a_kind() {
        for kind in Kind::ALL {
            assert!(METHODS.iter().any(|(_, of)| of == kind), "{kind:?}");
        }
        for check in Check::ALL {
            assert!(Kind::ALL.iter().any(|kind| kind.about().1.contains(check)), "{check}");
        }
    }
}
