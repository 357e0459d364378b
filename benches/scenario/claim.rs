//! What should be true, and whether it was.

use serde_json::{Value, json};

use crate::machine;

/// What was claimed so far.
#[derive(Debug, Default)]
pub(crate) struct Claims(Vec<(bool, String)>);

impl Claims {
    /// Notes and prints one.
    pub(crate) fn check(&mut self, holds: bool, what: String) {
        println!("  {} {what}", if holds { "holds:         " } else { "DOES NOT HOLD: " });
        self.0.push((holds, what));
    }

    /// Ends the run: keeps `record`, if there is one, under this name with the claims and the machine
    /// in it, and exits with 1 when a claim does not hold.
    pub(crate) fn end(&self, name: &str, record: Option<Value>) {
        let all_hold = self.conclude();
        if let Some(mut record) = record {
            record["machine"] = machine::machine();
            record["claims"] = self.to_json();
            match machine::keep(name, record) {
                Ok(path) => println!("kept as {path}"),
                Err(why) => println!("not kept: {why}"),
            }
        }
        if !all_hold {
            std::process::exit(1);
        }
    }

    /// Prints those that do not hold once more; true when there is none.
    fn conclude(&self) -> bool {
        let broken = self.0.iter().filter(|(holds, _)| !holds);
        println!("\n{} claims, {} do not hold", self.0.len(), broken.clone().count());
        broken.clone().for_each(|(_, what)| println!("  DOES NOT HOLD: {what}"));
        broken.count() == 0
    }

    fn to_json(&self) -> Value {
        self.0.iter().map(|(holds, what)| json!({ "holds": holds, "claim": what })).collect()
    }
}
