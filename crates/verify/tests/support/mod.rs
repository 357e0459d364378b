//! Recorded and simulated answers, and forging them.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

use serde_json::Value;
use wellhead_eth::{ChainId, MethodTable};
use wellhead_verify::{AnswerFinding, Check, HeaderFacts, KnownFacts, Level, Rules, Why, verify};

/// The chain id of `geth --dev`.
pub(crate) const DEV: ChainId = ChainId(1337);

/// One call and its answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) name: String,
    pub(crate) method: String,
    pub(crate) params: String,
    pub(crate) result: Value,
}

impl Answer {
    pub(crate) fn new(method: &str, params: &Value, result: Value) -> Self {
        let method = method.to_owned();
        Self { name: method.clone(), method, params: params.to_string(), result }
    }

    pub(crate) fn find(&self, level: Level, known: &KnownFacts<'_>) -> AnswerFinding {
        self.find_raw(level, known, self.result.to_string().as_bytes())
    }

    pub(crate) fn find_raw(
        &self,
        level: Level,
        known: &KnownFacts<'_>,
        result: &[u8],
    ) -> AnswerFinding {
        let row = MethodTable::standard().row(&self.method);
        verify(level, row, Some(self.params.as_bytes()), result, known)
    }

    /// The answer with `value` in the place of what `pointer` points at.
    pub(crate) fn forged(&self, pointer: &str, value: Value) -> Self {
        let mut forged = self.clone();
        let place = forged.result.pointer_mut(pointer);
        *place.unwrap_or_else(|| panic!("{}: no {pointer}", self.name)) = value;
        forged
    }
}

/// Everything that was recorded.
pub(crate) fn recorded() -> Vec<Answer> {
    let file: Value = serde_json::from_str(include_str!("../data/geth.json")).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let answers = file["answers"].as_array().unwrap().iter();
    answers
        .map(|answer| Answer {
            name: text(&answer["name"]),
            method: text(&answer["method"]),
            params: answer["params"].to_string(),
            result: answer["result"].clone(),
        })
        .collect()
}

pub(crate) fn named(name: &str) -> Answer {
    let found = recorded().into_iter().find(|answer| answer.name == name);
    found.unwrap_or_else(|| panic!("nothing recorded is called {name}"))
}

pub(crate) fn header(block: &Answer) -> HeaderFacts {
    HeaderFacts::read(block.result.to_string().as_bytes()).unwrap()
}

/// What is known of the developer's chain.
pub(crate) fn dev(header: Option<&HeaderFacts>) -> KnownFacts<'_> {
    KnownFacts { chain_id: Some(DEV), rules: Rules::Ethereum, header, ..KnownFacts::default() }
}

#[track_caller]
pub(crate) fn sound(answer: &Answer, known: &KnownFacts<'_>) {
    for level in [Level::Cheap, Level::Full] {
        assert_eq!(answer.find(level, known), AnswerFinding::Sound, "{} {level}", answer.name);
    }
}

/// The check finds it, and from its own level on.
#[track_caller]
pub(crate) fn void(answer: &Answer, known: &KnownFacts<'_>, want: Check) {
    for level in [Level::Cheap, Level::Full] {
        let finding = answer.find(level, known);
        match &finding {
            AnswerFinding::Void { check, detail } if level >= want.level() => {
                assert_eq!(*check, want, "{level}: {detail}");
                assert!(detail.len() < 400, "{detail}");
            }
            AnswerFinding::Sound
            | AnswerFinding::Void { .. }
            | AnswerFinding::NotChecked { .. } => {
                let looked_at = matches!(finding, AnswerFinding::Void { .. });
                assert!(!looked_at && level < want.level(), "{level}: {finding:?}, not {want}");
            }
        }
    }
}

#[track_caller]
pub(crate) fn not_checked(answer: &Answer, level: Level, known: &KnownFacts<'_>, why: &Why) {
    assert_eq!(answer.find(level, known), AnswerFinding::NotChecked { why: why.clone() });
}
