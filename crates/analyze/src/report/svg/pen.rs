//! Lines, letters and keys.

use std::fmt::Write as _;

use super::super::chart::{ChartMark, Ink, MarkKind, Style};
use super::super::scale::{Scale, tick_label};
use super::{WIDTH, width_of};
use crate::text::escaped;

/// Colours that differ; a series after these has a dashed line as well.
const COLORS: usize = 8;

/// The height of a line of letters.
pub(super) const ROW: f64 = 15.0;

/// What is left of the box in which data is drawn: labels of the ticks.
pub(super) const LEFT: f64 = 44.0;

/// The right end of that box.
pub(super) const RIGHT: f64 = WIDTH - 18.0;

/// What is drawn, and how large it is.
#[derive(Debug)]
pub(super) struct Drawing {
    pub(super) body: String,
    pub(super) width: f64,
    pub(super) height: f64,
    /// Attributes for the page's script: where the box is, and which values its ends have.
    pub(super) frame: String,
}

/// Where data is drawn, from top to bottom.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlotSpan {
    pub(super) top: f64,
    pub(super) bottom: f64,
}

/// An entry of a key: what looks like this is called so.
#[derive(Debug, Clone)]
pub(super) struct KeyEntry {
    pub(super) name: String,
    pub(super) class: String,
    pub(super) shape: KeyShape,
}

impl KeyEntry {
    pub(super) fn square(name: impl Into<String>, class: impl Into<String>) -> Self {
        Self { name: name.into(), class: class.into(), shape: KeyShape::Square }
    }
}

/// What a key shows before a name.
#[derive(Debug, Clone, Copy)]
pub(super) enum KeyShape {
    Square,
    Line(Style),
}

/// The class of a colour.
pub(super) fn class_of(ink: Ink) -> String {
    match ink {
        Ink::Bad => "bad".to_owned(),
        Ink::Quiet => "quiet".to_owned(),
        Ink::Nth(n) if n >= COLORS => format!("n{} again", n % COLORS),
        Ink::Nth(n) => format!("n{n}"),
    }
}

/// The class of a part of a bar.
pub(super) fn class_of_part(n: usize) -> String {
    const PARTS: [&str; 7] = ["n0", "n5", "n2", "n4", "quiet", "n1", "n3"];
    PARTS[n % PARTS.len()].to_owned()
}

/// A coordinate, to a tenth of a pixel.
pub(super) fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

pub(super) fn text(out: &mut String, x: f64, y: f64, class: &str, words: &str) {
    let (x, y) = (px(x), px(y));
    let _ = write!(out, "<text x=\"{x}\" y=\"{y}\" class=\"{class}\">{}</text>", escaped(words));
}

pub(super) fn line(out: &mut String, class: &str, from: (f64, f64), to: (f64, f64)) {
    let _ = write!(
        out,
        "<path class=\"{class}\" d=\"M{} {}L{} {}\"/>",
        px(from.0),
        px(from.1),
        px(to.0),
        px(to.1)
    );
}

/// Draws a key from `top` on, in as many lines as it takes; where it ends.
pub(super) fn key(out: &mut String, top: f64, entries: &[KeyEntry]) -> f64 {
    let (mut x, mut y) = (0.0, top);
    for entry in entries {
        let name = shortened(&entry.name);
        let wide = 18.0 + width_of(&name) + 12.0;
        if x > 0.0 && x + wide > WIDTH {
            (x, y) = (0.0, y + ROW);
        }
        let _ = write!(out, "<g class=\"{}\">", entry.class);
        let middle = y + 7.0;
        match entry.shape {
            KeyShape::Square => {
                let _ = write!(
                    out,
                    "<path class=\"fill\" d=\"M{} {}h10v10h-10z\"/>",
                    px(x + 2.0),
                    px(y + 2.0)
                );
            }
            KeyShape::Line(Style::Points) => dots(out, &[(x + 7.0, middle)], 6.0),
            KeyShape::Line(Style::Hollow) => rings(out, &[(x + 7.0, middle)]),
            KeyShape::Line(Style::Dashed) => {
                line(out, "dashed", (x, middle), (x + 14.0, middle));
            }
            KeyShape::Line(Style::Line | Style::Step) => {
                line(out, "line", (x, middle), (x + 14.0, middle));
            }
        }
        out.push_str("</g>");
        text(out, x + 18.0, y + 11.0, "soft", &name);
        x += wide;
    }
    if entries.is_empty() { top } else { y + ROW + 4.0 }
}

/// A name that fits into a line of a key: its end stays, for it may hold figures.
fn shortened(name: &str) -> String {
    const TAIL: usize = 29;
    let most = ((WIDTH - 18.0) / width_of("x")) as usize;
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= most {
        return name.to_owned();
    }
    let (head, tail) = (&letters[..most - TAIL - 1], &letters[letters.len() - TAIL..]);
    head.iter().chain(&['…']).chain(tail).collect()
}

/// Filled dots, in one path: clouds have many.
pub(super) fn dots(out: &mut String, points: &[(f64, f64)], size: f64) {
    let _ = write!(out, "<path class=\"dots\" style=\"stroke-width:{}\" d=\"", px(size));
    for (x, y) in points {
        let _ = write!(out, "M{} {}h0", px(*x), px(*y));
    }
    out.push_str("\"/>");
}

/// Hollow ones.
pub(super) fn rings(out: &mut String, points: &[(f64, f64)]) {
    for (x, y) in points {
        let (x, y) = (px(*x), px(*y));
        let _ = write!(out, "<circle class=\"ring\" cx=\"{x}\" cy=\"{y}\" r=\"3.5\"/>");
    }
}

/// The grid and the ticks of an x axis, and its label below; where they end.
pub(super) fn x_axis(out: &mut String, scale: &Scale, label: &str, span: PlotSpan) -> f64 {
    let PlotSpan { top, bottom } = span;
    let mut free = f64::NEG_INFINITY;
    for tick in scale.ticks() {
        let x = scale.at(tick);
        line(out, "grid", (x, top), (x, bottom + 4.0));
        let words = tick_label(tick);
        let half = width_of(&words) / 2.0;
        if x - half >= free {
            text(out, x, bottom + 16.0, "soft mid", &words);
            free = x + half + 4.0;
        }
    }
    line(out, "axis", (scale.start(), bottom), (RIGHT, bottom));
    text(out, RIGHT, bottom + 32.0, "soft end", label);
    bottom + 38.0
}

/// The grid and the ticks of a y axis.
pub(super) fn y_axis(out: &mut String, scale: &Scale) {
    for tick in scale.ticks() {
        let y = scale.at(tick);
        line(out, "grid", (LEFT - 4.0, y), (RIGHT, y));
        text(out, LEFT - 8.0, y + 4.0, "soft end", &tick_label(tick));
    }
}

/// A label of a vertical line, and where it stands.
pub(super) struct PlacedMark<'a> {
    pub(super) mark: &'a ChartMark,
    x: f64,
    row: usize,
    /// Its label stands on its left.
    is_left: bool,
}

/// Finds a row for the label of each vertical line, so that none covers another.
pub(super) fn place_marks<'a>(marks: &'a [ChartMark], scale: &Scale) -> Vec<PlacedMark<'a>> {
    let shown = |mark: &&ChartMark| mark.x.is_some_and(|x| scale.holds(x));
    let mut placed: Vec<PlacedMark<'a>> = marks
        .iter()
        .filter(shown)
        .map(|mark| {
            let x = scale.at(mark.x.unwrap_or_default());
            let is_left = x + 4.0 + width_of(&mark.label) > WIDTH;
            PlacedMark { mark, x, row: 0, is_left }
        })
        .collect();
    placed.sort_by(|a, b| a.x.total_cmp(&b.x));
    let mut taken: Vec<Vec<(f64, f64)>> = Vec::new();
    for it in &mut placed {
        let (from, to) = it.extent();
        let free = |row: &Vec<(f64, f64)>| row.iter().all(|(a, b)| to < *a || from > *b);
        it.row = taken.iter().position(free).unwrap_or(taken.len());
        match taken.get_mut(it.row) {
            Some(row) => row.push((from, to)),
            None => taken.push(vec![(from, to)]),
        }
    }
    placed
}

/// Rows that the labels take.
pub(super) fn rows_of(placed: &[PlacedMark<'_>]) -> usize {
    placed.iter().map(|it| it.row + 1).max().unwrap_or(0)
}

impl PlacedMark<'_> {
    fn extent(&self) -> (f64, f64) {
        let wide = width_of(&self.mark.label) + 8.0;
        if self.is_left { (self.x - wide, self.x + 2.0) } else { (self.x - 2.0, self.x + wide) }
    }

    /// Draws the line from its label, above the box, to the bottom.
    pub(super) fn draw(&self, out: &mut String, span: PlotSpan) {
        let y = span.top - 4.0 - ROW * self.row as f64;
        line(out, mark_class(self.mark.kind), (self.x, y - 9.0), (self.x, span.bottom));
        let (x, anchor) =
            if self.is_left { (self.x - 4.0, "word end") } else { (self.x + 4.0, "word") };
        text(out, x, y, anchor, &self.mark.label);
    }
}

pub(super) fn mark_class(kind: MarkKind) -> &'static str {
    match kind {
        MarkKind::Verdict => "mark",
        MarkKind::Predicted => "mark predicted",
        MarkKind::Guide => "mark guide",
    }
}
