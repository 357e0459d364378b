//! The page `docs/methods.md`, written from the method table.
//!
//! Regenerate it with `cargo xtask docs`. A test fails while it is stale, so
//! that the page can be trusted as much as the code.

use std::fmt::Write as _;

use crate::method::MethodRow;
use crate::table::MethodTable;

const INTRODUCTION: &str = "\
# Methods

<!-- Generated from crates/eth/data/methods.txt by `cargo xtask docs`; edit that file. -->

What wellhead knows about each method, and therefore how it handles a call.
Methods that are not listed work too: they are handled by the first row, which
assumes nothing.

## Columns

**Effect**: what a call does.

| word | meaning |
| --- | --- |
| read | changes nothing; may be repeated at another upstream |
| broadcast | sends one signed transaction and returns its hash; may go to several upstreams; \"already known\" is a success |
| write | changes one upstream, or uses its key or its relay; goes to one upstream, and is never repeated once it may have arrived |
| subscribe | starts or ends a subscription |
| filter | creates a filter that wellhead keeps and answers by reads, whichever upstreams there are |
| sticky | is about a filter: `create`s one in an upstream, `use`s or `drop`s one, wherever it is kept |
| local | answered by wellhead |

**Block**: where the call names its block. Parameters count from 0.

| form | meaning |
| --- | --- |
| - | no block |
| at:1=latest | parameter 1 is a tag, number, hash or EIP-1898 object; `latest` if it is absent |
| field:1.blockNumber=latest | as `at`, in a member of an object |
| hash:0 | parameter 0 is a block hash |
| filter:0=latest..latest | parameter 0 is an object with `fromBlock` and `toBlock` (and their defaults), or `blockHash` |
| range:0..1 | parameters 0 and 1 are the first and the last block |

**Final**: how long an answer stays valid.

| word | meaning |
| --- | --- |
| fixed | forever |
| block | as long as the block referred to is canonical |
| inclusion | found by hash; as long as the block that contains it is canonical |
| head | until the next head; also for values that change while a rollup settles |
| live | not reusable |

**Again**: whether the call may be sent twice without harm.

**Cost**: roughly what a call costs an upstream: light, state, block, call, logs, trace, write.

**Null**: `answer` if a `null` result is an answer; `missing` if it means that this
upstream lacks something that another may have.

**Access**: the intended users of the method. All but `public` methods are refused (-32601) unless the
chain's setting `methods.dangerous` lists them; `keys` and `dev` methods are also allowed on a
test chain on this machine ([security](../SECURITY.md)).

| word | meaning |
| --- | --- |
| public | every client |
| admin | the operator of the node: controls or stops it, reads or writes its files, shows its internals |
| keys | uses, creates or shows keys that the node holds |
| dev | manipulates a test chain |
";

/// The whole page.
pub fn methods_page() -> String {
    let mut page = INTRODUCTION.to_owned();
    let mut family = "";
    let table = MethodTable::standard();
    for row in table.rows() {
        if row.family != family {
            if table.rows()[0].family == family {
                patterns(&mut page, table);
            }
            family = row.family;
            heading(&mut page, family);
        }
        line(&mut page, row);
    }
    page
}

fn heading(page: &mut String, family: &str) {
    page.push_str("\n## ");
    page.push_str(family);
    page.push_str("\n\n| Method | Effect | Block | Final | Again | Cost | Null | Access | |\n");
    page.push_str("| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
}

/// The access of methods that are not listed, by their names.
fn patterns(page: &mut String, table: &MethodTable) {
    page.push_str(
        "\nUnlisted methods with these names are not public (the first match decides; case is ignored):\n\n",
    );
    page.push_str("| Names | Access |\n| --- | --- |\n");
    for (pattern, access) in table.patterns() {
        writeln!(page, "| `{pattern}` | {access} |").expect("writing to a string does not fail");
    }
}

fn line(page: &mut String, row: &MethodRow) {
    let role = row.sticky.map_or(String::new(), |role| format!(" ({role})"));
    let again = if row.idempotent { "yes" } else { "no" };
    let null = if row.null_is_answer { "answer" } else { "missing" };
    writeln!(
        page,
        "| `{}` | {}{role} | {} | {} | {again} | {} | {null} | {} | {} |",
        row.name,
        row.effect,
        row.block,
        row.finality,
        row.class,
        row.access,
        row.about.replace('|', "\\|"),
    )
    .expect("writing to a string does not fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_up_to_date() {
        let path = format!(
            "{}/../../docs/methods.md",
            std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")
        );
        let written = std::fs::read_to_string(path).unwrap_or_default();
        let fresh = methods_page();
        let stale = written.lines().zip(fresh.lines()).find(|(old, new)| old != new);
        assert!(
            written == fresh,
            "docs/methods.md is stale: run `cargo xtask docs` and commit it; first difference: {stale:?}"
        );
    }

    #[test]
    fn every_row_is_on_the_page_once() {
        let page = methods_page();
        for row in MethodTable::standard().rows() {
            assert_eq!(page.matches(&format!("\n| `{}` |", row.name)).count(), 1, "{}", row.name);
        }
    }

    #[test]
    fn every_word_is_explained() {
        use crate::method::{Access, CostClass, Effect, Finality};
        let words = Effect::ALL.iter().map(|effect| effect.word());
        let words = words.chain(Finality::ALL.iter().map(|finality| finality.word()));
        let words = words.chain(Access::ALL.iter().map(|access| access.word()));
        for word in words {
            assert!(INTRODUCTION.contains(&format!("\n| {word} |")), "{word}");
        }
        for class in CostClass::ALL {
            assert!(INTRODUCTION.contains(class.word()), "{class}");
        }
    }
}
