//! Figures over x.

use std::fmt::Write as _;

use super::super::chart::{Plot, Series, Style};
use super::super::scale::Scale;
use super::WIDTH;
use super::pen::{
    Drawing, KeyEntry, KeyShape, LEFT, PlotSpan, RIGHT, ROW, class_of, dots, key, line, mark_class,
    place_marks, px, rings, rows_of, text, x_axis, y_axis,
};

/// The height of the box in which data is drawn.
const HIGH: f64 = 176.0;

/// Points of a line that are shown each.
const DOTTED_MAX: usize = 40;

/// Points of a cloud from which on they are small.
const CLOUD_MIN: usize = 200;

pub(super) fn draw(plot: &Plot) -> Drawing {
    let mut out = String::new();
    let entries: Vec<KeyEntry> = plot.series.iter().map(entry).collect();
    let top = key(&mut out, 0.0, &entries);
    text(&mut out, 0.0, top + 11.0, "soft", &plot.y.label);
    let x = Scale::new(&plot.x, LEFT, RIGHT);
    let placed = place_marks(&plot.marks, &x);
    let top = top + 22.0 + ROW * rows_of(&placed) as f64;
    let span = PlotSpan { top, bottom: top + HIGH };
    let y = Scale::new(&plot.y, span.bottom, span.top);
    y_axis(&mut out, &y);
    let height = x_axis(&mut out, &x, &plot.x.label, span);
    for series in &plot.series {
        let _ = write!(out, "<g class=\"{}\">", class_of(series.ink));
        draw_series(&mut out, &plot.xs, series, (&x, &y));
        out.push_str("</g>");
    }
    across(&mut out, plot, &y);
    placed.iter().for_each(|it| it.draw(&mut out, span));
    let (from, to) = plot.x.range.unwrap_or((0.0, 1.0));
    let frame = format!(
        " data-frame=\"{LEFT} {RIGHT} {} {} {from} {to} {}\"",
        px(span.top),
        px(span.bottom),
        if plot.x.log { "log" } else { "even" },
    );
    Drawing { body: out, width: WIDTH, height, frame }
}

fn entry(series: &Series) -> KeyEntry {
    KeyEntry {
        name: series.name.clone(),
        class: class_of(series.ink),
        shape: KeyShape::Line(series.style),
    }
}

/// Horizontal lines, with labels on the right that do not cover each other.
fn across(out: &mut String, plot: &Plot, scale: &Scale) {
    let mut marks: Vec<_> = plot.marks.iter().filter_map(|mark| Some((mark.y?, mark))).collect();
    marks.retain(|(y, _)| scale.holds(*y));
    marks.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut free = f64::NEG_INFINITY;
    for (at, mark) in marks {
        let y = scale.at(at);
        line(out, mark_class(mark.kind), (LEFT, y), (RIGHT, y));
        let label = (y - 3.0).max(free);
        text(out, RIGHT - 3.0, label, "word end", &mark.label);
        free = label + 12.0;
    }
}

fn draw_series(out: &mut String, xs: &[f64], series: &Series, scales: (&Scale, &Scale)) {
    let points: Vec<Option<(f64, f64)>> = xs
        .iter()
        .zip(&series.data)
        .map(|(x, y)| y.map(|y| (scales.0.at(*x), scales.1.at(y))))
        .collect();
    let there: Vec<(f64, f64)> = points.iter().flatten().copied().collect();
    match series.style {
        Style::Points => dots(out, &there, if there.len() > CLOUD_MIN { 2.6 } else { 6.0 }),
        Style::Hollow => rings(out, &there),
        Style::Dashed => path(out, "dashed", &there),
        Style::Line => {
            path(out, "line", &there);
            if there.len() <= DOTTED_MAX {
                dots(out, &there, 5.0);
            }
        }
        Style::Step => stairs(out, &points),
    }
}

fn path(out: &mut String, class: &str, points: &[(f64, f64)]) {
    let _ = write!(out, "<path class=\"{class}\" d=\"");
    for (n, (x, y)) in points.iter().enumerate() {
        let _ = write!(out, "{}{} {}", if n == 0 { 'M' } else { 'L' }, px(*x), px(*y));
    }
    out.push_str("\"/>");
}

/// Each value holds until the next x.
fn stairs(out: &mut String, points: &[Option<(f64, f64)>]) {
    out.push_str("<path class=\"line\" d=\"");
    let mut before: Option<(f64, f64)> = None;
    for point in points {
        match (before, *point) {
            (None, Some((x, y))) => {
                let _ = write!(out, "M{} {}", px(x), px(y));
            }
            (Some((_, old)), Some((x, y))) if px(old) != px(y) => {
                let _ = write!(out, "H{}V{}", px(x), px(y));
            }
            // Nothing to see yet: the line goes on.
            (Some((_, old)), Some((x, _))) => {
                before = Some((x, old));
                continue;
            }
            (Some((x, _)), None) => {
                let _ = write!(out, "H{}", px(x));
            }
            (None, None) => {}
        }
        before = *point;
    }
    if let Some((x, _)) = before {
        let _ = write!(out, "H{}", px(x));
    }
    out.push_str("\"/>");
    // One value alone makes no line.
    if let [point] = points.iter().flatten().collect::<Vec<_>>()[..] {
        dots(out, &[*point], 5.0);
    }
}
