//! What a chart holds, whatever draws it. `svg` draws it, and the page's script gets it as JSON for
//! tables and for CSV.

use serde::Serialize;

/// One axis. It has one unit, which its label names.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Axis {
    pub(super) label: String,
    pub(super) log: bool,
    /// Its ends; where they are not given, `axes` finds those that hold the data of all targets.
    pub(super) range: Option<(f64, f64)>,
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Style {
    /// From point to point, over what is missing.
    Line,
    Dashed,
    Points,
    /// Points of cells that conclude nothing.
    Hollow,
    /// Each value holds until the next one; what is missing is not drawn.
    Step,
}

/// What a colour stands for; the page knows which it is in light and dark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ink {
    Bad,
    Quiet,
    /// One of a row of colours that differ.
    Nth(usize),
}

/// One figure over x.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) style: Style,
    pub(super) ink: Ink,
    pub(super) data: Vec<Option<f64>>,
}

/// A line across, with a word.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ChartMark {
    pub(super) x: Option<f64>,
    pub(super) y: Option<f64>,
    pub(super) label: String,
    pub(super) kind: MarkKind,
}

/// What a line across says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum MarkKind {
    /// A verdict puts it there.
    Verdict,
    /// The catalogue does, and nothing was measured.
    Predicted,
    /// It is there to read the chart by.
    Guide,
}

/// Figures over x.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Plot {
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) xs: Vec<f64>,
    pub(super) series: Vec<Series>,
    pub(super) marks: Vec<ChartMark>,
}

/// Calls in time, a row each.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Waterfall {
    pub(super) title: String,
    pub(super) x: Axis,
    /// Milliseconds since the first of all.
    pub(super) begin: Vec<f64>,
    /// When each phase of a call was over, by [`Waterfall::parts`]; the last one ends the call.
    pub(super) steps: Vec<Vec<f64>>,
    pub(super) parts: Vec<String>,
    pub(super) end: Vec<f64>,
    pub(super) good: Vec<bool>,
    /// What became of it, and which connection and stream carried it.
    pub(super) word: Vec<String>,
}

/// Parts of a whole, side by side.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Stack {
    pub(super) title: String,
    /// Of the axis of all bars, with its unit.
    pub(super) x: Axis,
    pub(super) unit: &'static str,
    pub(super) parts: Vec<String>,
    /// A name and a figure for each part.
    pub(super) bars: Vec<(String, Vec<f64>)>,
    pub(super) marks: Vec<ChartMark>,
}

/// Shares in a grid.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Matrix {
    pub(super) title: String,
    pub(super) columns: Vec<String>,
    /// A name, and for each column how many of how many.
    pub(super) rows: Vec<(String, Vec<(u64, u64)>)>,
}

/// How many calls took how long, and when: a grid of counts.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Heat {
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    /// The middle of each column.
    pub(super) xs: Vec<f64>,
    /// The lower ends of the rows, and the upper end of the last one.
    pub(super) edges: Vec<f64>,
    /// Calls that were served, by column and row.
    pub(super) counts: Vec<Vec<u64>>,
    /// Calls that were not, by column.
    pub(super) failed: Vec<u64>,
    /// Of the calls that were served in a column.
    pub(super) median: Vec<Option<f64>>,
}

/// One of them.
#[derive(Debug, Clone, Serialize, strum::IntoStaticStr)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum Chart {
    Plot(Plot),
    Waterfall(Waterfall),
    Stack(Stack),
    Matrix(Matrix),
    Heat(Heat),
}

impl Chart {
    pub(super) fn title(&self) -> &str {
        match self {
            Self::Plot(it) => &it.title,
            Self::Waterfall(it) => &it.title,
            Self::Stack(it) => &it.title,
            Self::Matrix(it) => &it.title,
            Self::Heat(it) => &it.title,
        }
    }
}

impl Axis {
    pub(super) fn new(label: &str) -> Self {
        Self { label: label.to_owned(), log: false, range: None }
    }

    pub(super) fn log(label: &str) -> Self {
        Self { log: true, ..Self::new(label) }
    }

    pub(super) fn percent(label: &str) -> Self {
        Self { range: Some((0.0, 100.0)), ..Self::new(label) }
    }
}

impl Series {
    pub(super) fn new(name: &str, style: Style, ink: Ink, data: Vec<Option<f64>>) -> Self {
        let data = data.into_iter().map(|y| y.map(rounded)).collect();
        Self { name: name.to_owned(), style, ink, data }
    }
}

impl ChartMark {
    pub(super) fn x(at: f64, label: impl Into<String>) -> Self {
        Self { x: Some(at), y: None, label: label.into(), kind: MarkKind::Verdict }
    }

    pub(super) fn y(at: f64, label: impl Into<String>) -> Self {
        Self { x: None, y: Some(at), label: label.into(), kind: MarkKind::Verdict }
    }
}

/// Five figures: a page holds many, and no reader sees more.
pub(super) fn rounded(x: f64) -> f64 {
    format!("{x:.4e}").parse().unwrap_or(x)
}
