//! The confusion matrix: what is true, against what was told.

use std::collections::BTreeMap;
use std::fmt;

use super::grade::{Grade, Truth, Worth};

/// Of all verdicts at least this share has to be right.
const RIGHT_MIN: f64 = 0.9;

/// Grades by what is true.
#[derive(Debug, Default)]
pub(crate) struct Matrix {
    rows: BTreeMap<&'static str, MatrixRow>,
    servers: usize,
    /// What was not right, a line each.
    off: Vec<String>,
}

#[derive(Debug, Default)]
struct MatrixRow {
    right: usize,
    inconclusive: usize,
    wrong: usize,
    told: BTreeMap<&'static str, usize>,
}

impl Matrix {
    /// Counts a server.
    pub(crate) fn server(&mut self) {
        self.servers += 1;
    }

    /// Adds what was said of one truth of the server `name`.
    pub(crate) fn add(&mut self, name: &str, truth: &Truth, grade: &Grade) {
        let kind = truth.told.first().map_or("", |it| it.kind);
        let row = self.rows.entry(kind).or_default();
        match grade.worth {
            Worth::Right => row.right += 1,
            Worth::Inconclusive => row.inconclusive += 1,
            Worth::Wrong => row.wrong += 1,
        }
        *row.told.entry(grade.told).or_default() += 1;
        if grade.worth != Worth::Right {
            let told = match grade.lines.as_slice() {
                [] => format!("{}: no verdict", truth.experiment),
                lines => lines.join("; "),
            };
            self.off.push(format!(
                "{:?} {name}: true is {:?}; told is {told}",
                grade.worth, truth.told
            ));
        }
    }

    fn sum(&self, of: impl Fn(&MatrixRow) -> usize) -> usize {
        self.rows.values().map(of).sum()
    }

    fn all(&self) -> usize {
        self.sum(|row| row.right + row.inconclusive + row.wrong)
    }

    /// Whether no verdict of medium or high confidence is wrong and enough of all are right.
    pub(crate) fn holds(&self) -> bool {
        let right = self.sum(|row| row.right) as f64;
        self.sum(|row| row.wrong) == 0 && right >= RIGHT_MIN * self.all() as f64
    }
}

impl fmt::Display for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.off {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "\n{:<22} {:>5} {:>5} {:>5}  told", "true", "right", "open", "wrong")?;
        for (kind, row) in &self.rows {
            let told: Vec<String> =
                row.told.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
            let told = told.join(", ");
            writeln!(
                f,
                "{kind:<22} {:>5} {:>5} {:>5}  {told}",
                row.right, row.inconclusive, row.wrong
            )?;
        }
        let (all, right) = (self.all(), self.sum(|row| row.right));
        let percent = 100.0 * right as f64 / all.max(1) as f64;
        writeln!(
            f,
            "{} servers, {all} verdicts: {right} right ({percent:.1} %), {} inconclusive, {} wrong with medium or \
             high confidence",
            self.servers,
            self.sum(|row| row.inconclusive),
            self.sum(|row| row.wrong)
        )
    }
}
