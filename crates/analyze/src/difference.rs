//! What clients write differently without meaning anything else: `data/differences.txt`.

use std::sync::OnceLock;

const TEXT: &str = include_str!("../data/differences.txt");

/// How two answers may differ in a member and mean the same. Its words stand in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum DifferenceKind {
    /// One has it, another has not.
    Absent,
    /// Each writes it in its own way.
    Apart,
    /// With or without zeros in front.
    Padded,
    /// To six digits.
    Digits,
}

wellhead_word::words!(DifferenceKind);

/// One line of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Difference {
    /// How.
    pub kind: DifferenceKind,
    /// Of which methods: names with commas between, or `*`.
    pub methods: &'static str,
    /// The last names of the path, with dots between.
    pub member: &'static str,
    /// For people.
    pub why: &'static str,
}

impl Difference {
    /// Whether it is about the member at this path of an answer to this method.
    pub(crate) fn is_about(&self, method: &str, path: &[String]) -> bool {
        let mut names = path.iter().rev();
        let of_method = self.methods == "*" || self.methods.split(',').any(|name| name == method);
        of_method
            && self.member.rsplit('.').all(|part| names.next().is_some_and(|name| name == part))
    }
}

/// The list, in its order.
pub(crate) fn known_differences() -> &'static [Difference] {
    static LIST: OnceLock<Vec<Difference>> = OnceLock::new();
    LIST.get_or_init(|| {
        let line = |line: &'static str| {
            read(line).expect("the list is compiled in, and a test reads every line of it")
        };
        TEXT.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(line).collect()
    })
}

/// The digest of more than half of the answers.
pub(crate) fn majority<'a>(digests: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let told: Vec<&str> = digests.collect();
    let count = |one: &str| told.iter().filter(|digest| **digest == one).count();
    told.iter().copied().find(|digest| count(digest) * 2 > told.len())
}

fn read(line: &'static str) -> Option<Difference> {
    let mut rest = line;
    let mut word = || {
        let (word, after) = rest.split_once(char::is_whitespace)?;
        rest = after.trim_start();
        Some(word)
    };
    let kind = DifferenceKind::from_word(word()?)?;
    let (methods, member) = (word()?, word()?);
    (!rest.is_empty()).then_some(Difference { kind, methods, member, why: rest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_can_be_read_and_names_known_methods() {
        let list = known_differences();
        assert!(list.len() > 30);
        for known in list {
            for method in known.methods.split(',').filter(|name| *name != "*") {
                let row = wellhead_eth::MethodTable::standard().row(method);
                assert!(!row.is_unknown(), "{known:?}");
            }
        }
    }

    #[test]
    fn a_line_is_about_the_end_of_a_path() {
        let path = |text: &str| text.split('.').map(str::to_owned).collect::<Vec<_>>();
        let of = |member| {
            *known_differences().iter().find(|known| known.member == member).expect("listed")
        };
        assert!(of("size").is_about("eth_getBlockByHash", &path("result.size")));
        assert!(!of("size").is_about("eth_getBlockByHash", &path("result.size.more")));
        assert!(of("logs.type").is_about("eth_getTransactionReceipt", &path("result.logs.type")));
        assert!(!of("logs.type").is_about("eth_getTransactionReceipt", &path("result.type")));
        assert!(!of("error.data").is_about("eth_estimateGas", &path("error.data")));
    }
}
