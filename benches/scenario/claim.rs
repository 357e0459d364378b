//! What should be true, and whether it was.

use serde_json::{Value, json};

/// What was claimed so far.
#[derive(Debug, Default)]
pub(crate) struct Claims(Vec<(bool, String)>);

impl Claims {
    /// Notes and prints one.
    pub(crate) fn check(&mut self, holds: bool, what: String) {
        println!("  {} {what}", if holds { "holds:         " } else { "DOES NOT HOLD: " });
        self.0.push((holds, what));
    }

    /// Prints those that do not hold once more; true when there is none.
    pub(crate) fn conclude(&self) -> bool {
        let broken = self.0.iter().filter(|(holds, _)| !holds);
        println!("\n{} claims, {} do not hold", self.0.len(), broken.clone().count());
        broken.clone().for_each(|(_, what)| println!("  DOES NOT HOLD: {what}"));
        broken.count() == 0
    }

    pub(crate) fn to_json(&self) -> Value {
        self.0.iter().map(|(holds, what)| json!({ "holds": holds, "claim": what })).collect()
    }
}
