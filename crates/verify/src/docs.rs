//! The page `docs/verify.md`, written from the tables of checks and methods.
//!
//! Regenerate it with `cargo xtask docs`. A test fails while it is stale.

use std::fmt::Write as _;

use crate::finding::{Check, Level};
use crate::method::{METHODS, ResultKind};
use crate::{CHEAP_BYTES_MAX, FULL_BYTES_MAX, SENDERS_MAX};

const INTRODUCTION: &str = "\
# Verifying answers

<!-- Generated from crates/verify by `cargo xtask docs`; edit the sources. -->

wellhead can check the answers of upstreams before it uses them. By default it checks those of
third-party upstreams at the level `cheap`, and does not check those of your own upstreams. A
configured level applies to all upstreams of the chain:

```yaml
chains:
  ethereum:
    verify:
      level: cheap
      levels:
        - { methods: [eth_getBlockReceipts, eth_getBlockBy*], level: full }
```

**Which level.** Third-party upstreams are those of a [provider](providers.md) that wellhead knows,
and those at an `https://` URL with a public name or address. All others are your own: on this
machine, at private addresses, under bare or cluster-internal names, and without TLS. `wellhead
check` shows the level of each upstream. `cheap` is the default for third parties because it detects
the mix-ups that occur in practice: an answer to another call, an answer for another block, or a
partial answer. It costs less than 3 % of the CPU time of a small call
([performance.md](performance.md)), but about 2 µs for a header and up to a millisecond for a large
block, so it is `off` for your own upstreams. `level: off` disables it for all. A level for some
methods (`levels`) applies to all upstreams. Use `full` where a single wrong answer costs money,
preferably only for the methods that you depend on.

## Levels

| level | what is checked |
| --- | --- |
| off | nothing |
| cheap | the answer is read once and compared with the call and with itself |
| full | as `cheap`, and everything that can be recomputed: hashes, tries, blooms, signatures, proofs |

An answer is **sound** if it passed every check of the level that applies to its content, **void**
if a check failed, and **not checked** if no check failed but one could not run: because of an
unknown header, a transaction type or header field of a later fork, an unsigned transaction,
ambiguous parameters, or the size of the answer.

**Void is certain.** A difference that a chain's own rules could explain makes the answer not
checked. Hashes, roots, blooms, gas, proofs, senders and chain ids make an answer void only on
chains known to follow Ethereum's rules: its public networks, and chains with `ethereum: true`.
Rollups and sidechains add unsigned transactions, receipts outside the root, or a withdrawals root
with another meaning.

**Sound is not proven true.** The level `cheap` accepts any answer that is consistent with itself.
The level `full` ties a block to its hash, but only the comparison of heads shows whether that hash
is on the chain. No level checks `size`, `totalDifficulty`, `gasPrice` of a mined transaction with
dynamic fees, `effectiveGasPrice`, `contractAddress`, `blockTimestamp`, `removed`, or whether logs
are missing from an answer over several blocks. For a block with transaction hashes instead of whole
transactions, the header is proven but not the list.

**Logs of one block.** When `eth_getLogs` is checked at `full`, an answer for a single block
(`blockHash`, or `fromBlock` equal to `toBlock`) is also compared with the block's receipts, to
detect missing logs: wellhead requests the header by its hash and `eth_getBlockReceipts`, and
recomputes both. If they disagree with the answer, the client gets the logs from the receipts, and
the answer is counted and shown as void (check `complete`), without effect on the upstream's health.
This costs at most two more calls per answer, each within `attempts.max`, and 5 s in total; one call
if the header is among the last 256; only the call for the header if its bloom excludes the filter.
If the header or the receipts cannot be fetched or recomputed, the client gets the original answer.
Not compared: ranges of more than one block, searches that are split, answers that several upstreams
agreed on, and chains that are not known to follow Ethereum's rules.

**Void answers.** A void answer reaches no client and no cache. It counts as a failure of its
upstream, and the call is retried at the next one within `attempts.max`. If no upstream gives a
sound answer, the client gets HTTP 503 with code -32002 and the name of the check. `/status` shows
the last 32 void answers of a chain (`void_answers`): time, upstream, call, check, reason, and the
first 2 KiB of the answer. The log has at most one line per minute for each upstream and check.

**What is not checked.** Errors and `null`, whose meaning the [method table](methods.md) defines;
answers from the [cache](cache.md), which were checked on arrival at the level of that time;
wellhead's own calls; and, at `cheap`, answers longer than `limits.answer_buffer`, which are
streamed to the client. At `full` answers up to 8 MiB are buffered instead.

**Threads.** Checks of up to about a quarter of a millisecond run on the worker that received the
answer: 64 KiB at `cheap`, 4 KiB at `full`, per exchange. All others run on a separate thread pool,
half as many threads as cores, for all chains together. At most 64 answers wait for a thread, for
one second each. Beyond that an answer of at most 256 KiB is checked as at `cheap`, and the answer
counts as `busy`.

**Headers.** Receipts and proofs are compared with their header if a block or header with that hash
was sound at `full` before, among the last 256 of the chain; otherwise checks that need the header
do not run. A proof does not name its block, so only calls that name the block by hash are compared.
No answer is compared with wellhead's view of the chain, which changes in a reorg.

**Metrics and trail.** `wellhead_verify_total` counts by chain, method and result: `sound`, `void`,
`not_checked`, `flowed`, `busy`. `wellhead_verify_void_total` counts by upstream, method and check.
The trail shows `sound-cheap` or `sound-full` for a sound answer, and `void` with the check for a
void one; `wellhead explain` shows the level for a call.

An answer with a duplicate key, or with a key in other letter case (`HASH`), is void, because
clients could read different values.
";

/// Measured figures, not derived from the code.
const COST: &str = "\n\
## Cost

`cargo bench -p wellhead-verify`, best of 25 rounds on a virtual machine with two cores and
ten other tasks: compare the ratios, and expect an idle machine to be a few times faster.

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

Signatures take nearly all the time of a whole block at `full`: 0.2 to 0.5 ms each.
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
    page.push_str(
        "\n| answer | methods | cheap | full, in addition |\n| --- | --- | --- | --- |\n",
    );
    for kind in ResultKind::ALL {
        let (what, checks) = (kind.noun(), kind.checks());
        let names = METHODS.iter().filter(|(_, of)| *of == kind).map(|(name, _)| *name);
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
            "| signatures per answer | {SENDERS_MAX} | further signatures are not checked |"
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
            assert!(ResultKind::ALL.contains(kind), "{name}");
        }
    }

    #[test]
    fn every_kind_has_a_method_and_every_check_a_kind() {
        for kind in ResultKind::ALL {
            assert!(METHODS.iter().any(|(_, of)| *of == kind), "{kind:?}");
        }
        for check in Check::ALL {
            assert!(ResultKind::ALL.iter().any(|kind| kind.checks().contains(&check)), "{check}");
        }
    }
}
