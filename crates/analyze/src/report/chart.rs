//! What a chart holds, whatever draws it. Handed to the page's script as JSON.

use serde::Serialize;

/// One axis.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Axis {
    pub(super) label: String,
    pub(super) log: bool,
    /// Ends of the axis where they are not those of the data.
    pub(super) range: Option<(f64, f64)>,
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Style {
    Line,
    Dashed,
    Points,
    Step,
    Bars,
}

/// What a colour stands for; the page knows which it is in light and dark.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ink {
    Good,
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
    /// On the second axis.
    pub(super) second: bool,
    pub(super) data: Vec<Option<f64>>,
}

/// A line across, with a word.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ChartMark {
    pub(super) x: Option<f64>,
    pub(super) y: Option<f64>,
    pub(super) label: String,
    /// By the catalogue, and not measured.
    pub(super) predicted: bool,
}

/// Figures over x.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Plot {
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) second: Option<Axis>,
    pub(super) xs: Vec<f64>,
    pub(super) series: Vec<Series>,
    pub(super) marks: Vec<ChartMark>,
}

/// Calls in time, a row each.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Waterfall {
    pub(super) title: String,
    /// The end of the time axis, shared with the charts beside it.
    pub(super) until: f64,
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
    pub(super) unit: &'static str,
    pub(super) parts: Vec<String>,
    /// A name and a figure for each part.
    pub(super) bars: Vec<(String, Vec<f64>)>,
}

/// Shares in a grid.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Matrix {
    pub(super) title: String,
    pub(super) columns: Vec<String>,
    /// A name, and for each column how many of how many.
    pub(super) rows: Vec<(String, Vec<(u64, u64)>)>,
}

/// One of them.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum Chart {
    Plot(Plot),
    Waterfall(Waterfall),
    Stack(Stack),
    Matrix(Matrix),
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
        Self { name: name.to_owned(), style, ink, second: false, data }
    }

    pub(super) fn on_second(self) -> Self {
        Self { second: true, ..self }
    }
}

impl ChartMark {
    pub(super) fn x(at: f64, label: impl Into<String>) -> Self {
        Self { x: Some(at), y: None, label: label.into(), predicted: false }
    }

    pub(super) fn y(at: f64, label: impl Into<String>) -> Self {
        Self { x: None, y: Some(at), label: label.into(), predicted: false }
    }
}

/// Five figures: a page holds many, and no reader sees more.
pub(super) fn rounded(x: f64) -> f64 {
    format!("{x:.4e}").parse().unwrap_or(x)
}
