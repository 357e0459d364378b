//! Grids: shares of agreement, and how long calls took over time.

use std::fmt::Write as _;

use super::super::chart::{Heat, Matrix};
use super::super::scale::Scale;
use super::WIDTH;
use super::pen::{Drawing, KeyEntry, LEFT, PlotSpan, RIGHT, ROW, key, px, text, x_axis, y_axis};
use super::rows::short;
use crate::conclude::verdict::figure;

/// The first column of a matrix, and each of the others.
const NAME_WIDE: f64 = 172.0;
const COLUMN_WIDE: f64 = 82.0;
const CELL_HIGH: f64 = 20.0;

/// The height of the grid of a heat map.
const HEAT_HIGH: f64 = 176.0;

/// The strip above it, of calls that were not served.
const STRIP: f64 = 9.0;

/// Shades of a heat map.
const SHADES: u32 = 5;

pub(super) fn matrix(matrix: &Matrix) -> Drawing {
    let mut out = String::new();
    let entries = [("all agree", "agree"), ("some differ: the more, the darker", "differ d3")];
    let entries = entries.map(|(name, class)| KeyEntry::square(name, class));
    let top = key(&mut out, 0.0, &entries);
    let left = |n: usize| NAME_WIDE + COLUMN_WIDE * n as f64;
    for (n, name) in matrix.columns.iter().enumerate() {
        // A pair stands in two lines.
        let lines = match name.split_once(" = ") {
            Some((one, other)) => vec![one.to_owned(), format!("= {other}")],
            None => vec![String::new(), name.clone()],
        };
        for (row, line) in lines.iter().enumerate() {
            let (x, y) = (left(n) + COLUMN_WIDE / 2.0, top + 12.0 + ROW * row as f64);
            text(&mut out, x, y, "soft mid", &short(line, COLUMN_WIDE - 2.0));
        }
    }
    let top = top + 2.0 * ROW + 6.0;
    for (row, (name, cells)) in matrix.rows.iter().enumerate() {
        let y = top + CELL_HIGH * row as f64;
        text(&mut out, 0.0, y + 14.0, "word", &short(name, NAME_WIDE - 6.0));
        for (n, (agree, of)) in cells.iter().enumerate() {
            let words = if *of > 0 { format!("{agree} of {of}") } else { "-".to_owned() };
            let _ = write!(
                out,
                "<g class=\"{}\"><path class=\"fill\" d=\"M{} {}h{}v{}H{1}z\"/></g>",
                shade_of(*agree, *of),
                px(left(n) + 1.0),
                px(y + 1.0),
                px(COLUMN_WIDE - 2.0),
                px(CELL_HIGH - 2.0),
            );
            text(&mut out, left(n) + COLUMN_WIDE / 2.0, y + 14.0, "word mid", &words);
        }
    }
    let width = (NAME_WIDE + COLUMN_WIDE * matrix.columns.len() as f64).max(WIDTH);
    let height = top + CELL_HIGH * matrix.rows.len() as f64 + 4.0;
    Drawing { body: out, width, height, frame: String::new() }
}

fn shade_of(agree: u64, of: u64) -> String {
    if of == 0 {
        return "nothing".to_owned();
    }
    let wrong = 1.0 - agree as f64 / of as f64;
    match wrong > 0.0 {
        true => format!("differ d{}", (wrong.sqrt() * 5.0).ceil().clamp(1.0, 5.0)),
        false => "agree".to_owned(),
    }
}

pub(super) fn heat(heat: &Heat) -> Drawing {
    let mut out = String::new();
    let most = heat.counts.iter().flatten().copied().max().unwrap_or(0).max(1);
    let shades = most.min(u64::from(SHADES)).max(1) as u32;
    let mut entries: Vec<KeyEntry> = (1..=shades)
        .filter(|shade| *shade == 1 || *shade == shades || shades > 2 && *shade == shades / 2 + 1)
        .map(|shade| {
            let class = format!("n0 h{}", level(shade, shades));
            KeyEntry::square(calls_of(shade, shades, most), class)
        })
        .collect();
    if heat.failed.iter().any(|failed| *failed > 0) {
        entries.push(KeyEntry::square("calls not served", "bad"));
    }
    let top = key(&mut out, 0.0, &entries);
    text(&mut out, 0.0, top + 11.0, "soft", &heat.y.label);
    let top = top + 22.0 + STRIP;
    let span = PlotSpan { top, bottom: top + HEAT_HIGH };
    let (x, y) = (Scale::new(&heat.x, LEFT, RIGHT), Scale::new(&heat.y, span.bottom, span.top));
    y_axis(&mut out, &y);
    let height = x_axis(&mut out, &x, &heat.x.label, PlotSpan { top: top - STRIP, ..span });
    let half = match heat.xs[..] {
        [first, second, ..] => (x.at(second) - x.at(first)) / 2.0,
        _ => (RIGHT - LEFT) / 2.0,
    };
    let mut by_shade = vec![String::new(); shades as usize + 1];
    let mut failed = String::new();
    for (column, counts) in heat.counts.iter().enumerate() {
        let left = x.at(heat.xs[column]) - half;
        let wide = px(2.0 * half);
        for (row, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let (low, high) = (y.at(heat.edges[row]), y.at(heat.edges[row + 1]));
            let d = &mut by_shade[shade(*count, most, shades) as usize];
            let _ = write!(d, "M{} {}h{wide}v{}h-{wide}z", px(left), px(high), px(low - high));
        }
        if heat.failed[column] > 0 {
            let _ = write!(failed, "M{} {}h{wide}v6h-{wide}z", px(left), px(top - STRIP));
        }
    }
    for (shade, d) in (0..).zip(&by_shade).filter(|(_, d)| !d.is_empty()) {
        let level = level(shade, shades);
        let _ = write!(out, "<g class=\"n0 h{level}\"><path class=\"fill\" d=\"{d}\"/></g>");
    }
    if !failed.is_empty() {
        let _ = write!(out, "<g class=\"bad\"><path class=\"fill\" d=\"{failed}\"/></g>");
    }
    Drawing { body: out, width: WIDTH, height, frame: String::new() }
}

/// The shade of a count: each one stands for the same factor.
fn shade(count: u64, most: u64, shades: u32) -> u32 {
    let share = (count as f64).ln() / (most as f64).ln().max(f64::MIN_POSITIVE);
    (1 + (share * f64::from(shades)) as u32).min(shades)
}

/// Which of the five opacities a shade has; the last is always the fullest.
fn level(shade: u32, shades: u32) -> u32 {
    SHADES - shades + shade
}

/// The counts of a shade.
fn calls_of(shade: u32, shades: u32, most: u64) -> String {
    let end = |n: u32| (most as f64).powf(f64::from(n) / f64::from(shades));
    let (from, to) = (end(shade - 1).ceil() as u64, (end(shade) - 1e-9).ceil() as u64);
    let to = if shade == shades { most } else { to.saturating_sub(1).max(from) };
    match (from, to) {
        (from, to) if from >= to => format!("{from} {}", if from == 1 { "call" } else { "calls" }),
        (from, to) => format!("{} to {} calls", figure(from as f64), figure(to as f64)),
    }
}
