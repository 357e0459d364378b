//! Bars and waterfalls: a row for each thing.

use std::fmt::Write as _;

use super::super::chart::{Stack, Waterfall};
use super::super::scale::Scale;
use super::pen::{
    Drawing, KeyEntry, LEFT, PlotSpan, RIGHT, ROW, class_of_part, key, line, place_marks, px,
    rows_of, text, x_axis,
};
use super::{WIDTH, width_of};
use crate::conclude::verdict::figure;

/// A bar with its name above it.
const BAR_ROW: f64 = 33.0;
const BAR_HIGH: f64 = 12.0;

/// The height of a waterfall, and of one of its rows at most.
const FALL_HIGH: f64 = 200.0;
const FALL_ROW_MAX: f64 = 12.0;

/// A key of those parts that are there.
fn parts_key(parts: &[String], is_there: impl Fn(usize) -> bool) -> Vec<KeyEntry> {
    let parts = parts.iter().enumerate().filter(|(n, _)| is_there(*n));
    parts.map(|(n, name)| KeyEntry::square(name, class_of_part(n))).collect()
}

pub(super) fn stack(stack: &Stack) -> Drawing {
    let mut out = String::new();
    let used = |n: usize| stack.bars.iter().any(|(_, parts)| parts.get(n) > Some(&0.0));
    let top = key(&mut out, 0.0, &parts_key(&stack.parts, used));
    let x = Scale::new(&stack.x, 4.0, RIGHT);
    let placed = place_marks(&stack.marks, &x);
    let top = top + ROW * rows_of(&placed) as f64 + 4.0;
    let span = PlotSpan { top, bottom: top + BAR_ROW * stack.bars.len() as f64 };
    let height = x_axis(&mut out, &x, &stack.x.label, span);
    for (n, (name, parts)) in stack.bars.iter().enumerate() {
        let y = top + BAR_ROW * n as f64;
        let sum: f64 = parts.iter().sum();
        let told = format!("{} {}", figure(sum), stack.unit);
        text(&mut out, 4.0, y + 12.0, "word", &short(name, WIDTH - width_of(&told) - 30.0));
        text(&mut out, RIGHT, y + 12.0, "soft end", told.trim_end());
        let mut from = 0.0;
        for (part, value) in parts.iter().enumerate().filter(|(_, value)| **value > 0.0) {
            let (left, right) = (x.at(from), x.at(from + value));
            from += value;
            let _ = write!(
                out,
                "<g class=\"{}\"><path class=\"fill\" d=\"M{} {}h{}v{BAR_HIGH}H{1}z\"/></g>",
                class_of_part(part),
                px(left),
                px(y + 16.0),
                px((right - left).max(0.5)),
            );
        }
    }
    placed.iter().for_each(|it| it.draw(&mut out, span));
    Drawing { body: out, width: WIDTH, height, frame: String::new() }
}

/// As much of a text as there is room for.
pub(super) fn short(name: &str, room: f64) -> String {
    if width_of(name) <= room {
        return name.to_owned();
    }
    let letters = ((room / width_of("x")) as usize).saturating_sub(1).max(1);
    name.chars().take(letters).chain(['…']).collect()
}

pub(super) fn waterfall(fall: &Waterfall) -> Drawing {
    let mut out = String::new();
    let lengths = |row: usize, part: usize| {
        let steps = &fall.steps[row];
        let from = part.checked_sub(1).map_or(fall.begin[row], |before| steps[before]);
        (from, steps[part])
    };
    let seen = |part: usize| {
        (0..fall.begin.len()).any(|row| {
            let (from, to) = lengths(row, part);
            fall.good[row] && to > from
        })
    };
    let mut entries = parts_key(&fall.parts, seen);
    if fall.good.contains(&false) {
        entries.push(KeyEntry::square("failed", "bad"));
    }
    let top = key(&mut out, 0.0, &entries) + 4.0;
    let rows = fall.begin.len().max(1) as f64;
    let row_high = (FALL_HIGH / rows).min(FALL_ROW_MAX);
    let span = PlotSpan { top, bottom: top + row_high * rows };
    let x = Scale::new(&fall.x, LEFT, RIGHT);
    let height = x_axis(&mut out, &x, &fall.x.label, span);
    text(&mut out, LEFT - 8.0, top + 10.0, "soft end", "call 1");
    if span.bottom - top > 2.0 * ROW {
        text(&mut out, LEFT - 8.0, span.bottom, "soft end", &fall.begin.len().to_string());
    }
    let y = |row: usize| px(top + row_high * (row as f64 + 0.5));
    let mut bars = |class: &str, bars: &mut dyn Iterator<Item = (usize, (f64, f64))>| {
        let mut d = String::new();
        for (row, (from, to)) in bars {
            let (left, right) = (x.at(from), x.at(to));
            if right - left >= 0.3 || class == "bad" {
                let _ = write!(d, "M{} {}h{}", px(left), y(row), px((right - left).max(0.6)));
            }
        }
        let wide = px(row_high * 0.86);
        let _ = write!(
            out,
            "<g class=\"{class}\"><path class=\"bar\" style=\"stroke-width:{wide}\" d=\"{d}\"/></g>"
        );
    };
    for part in 0..fall.parts.len() {
        let good = (0..fall.begin.len()).filter(|row| fall.good[*row]);
        bars(&class_of_part(part), &mut good.map(|row| (row, lengths(row, part))));
    }
    let failed = (0..fall.begin.len()).filter(|row| !fall.good[*row]);
    bars("bad", &mut failed.map(|row| (row, (fall.begin[row], fall.end[row]))));
    line(&mut out, "axis", (LEFT, span.top), (LEFT, span.bottom));
    Drawing { body: out, width: WIDTH, height, frame: String::new() }
}
