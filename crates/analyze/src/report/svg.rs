//! A chart as SVG, with a title and a description for those who do not see it.
//!
//! Drawn here and not in the page, so that a chart needs no script and a file has the same one.
//! Colours are words of `assets/chart.css`; the page and each file bring that along. Text is as
//! wide as a font makes it: what has to fit is estimated by [`width_of`], on the safe side.

mod grid;
mod pen;
mod plot;
mod rows;

use std::fmt::Write as _;

use self::pen::Drawing;
use super::chart::Chart;
use super::describe::description;
use crate::text::escaped;

/// Colours and lines of charts.
pub(super) const STYLE: &str = include_str!("../../assets/chart.css");

/// The width of a chart; a card of the page is about as wide, so that letters have their size.
const WIDTH: f64 = 370.0;

/// Below the title of a file.
const TITLE_ROW: f64 = 17.0;

/// Letters of a title in a line of a file.
const TITLE_LETTERS: usize = 50;

/// How wide a text of a chart is at most, about.
fn width_of(text: &str) -> f64 {
    6.8 * text.chars().count() as f64
}

/// A chart to stand in the page; `id` is unique there.
pub(super) fn inline(chart: &Chart, id: &str) -> String {
    let drawing = draw(chart);
    let mut out = String::new();
    let _ = write!(
        out,
        "<svg class=\"chart\" role=\"img\" aria-labelledby=\"{id}-t {id}-d\" \
         viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\"{2}><title id=\"{id}-t\">{3}</title>\
         <desc id=\"{id}-d\">{4}</desc>{5}</svg>",
        drawing.width,
        drawing.height,
        drawing.frame,
        escaped(chart.title()),
        escaped(&description(chart)),
        drawing.body,
    );
    out
}

/// A chart as a file of its own: with its style, on white, below its title and `subject`, such as
/// the experiment and the target.
pub(super) fn file(chart: &Chart, subject: &str) -> String {
    let drawing = draw(chart);
    let lines = title_lines(&format!("{subject}: {}", chart.title()));
    let above = TITLE_ROW * lines.len() as f64 + 8.0;
    let mut out = String::new();
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" role=\"img\" \
         aria-labelledby=\"t d\" viewBox=\"-10 {} {} {}\" width=\"{1}\" height=\"{2}\">\
         <title id=\"t\">{}</title><desc id=\"d\">{}</desc><style>{STYLE}</style>\
         <rect class=\"ground\" x=\"-10\" y=\"{0}\" width=\"100%\" height=\"100%\"/>",
        -above,
        drawing.width + 20.0,
        drawing.height + above + 8.0,
        escaped(&format!("{subject}: {}", chart.title())),
        escaped(&description(chart)),
    );
    for (n, line) in lines.iter().enumerate() {
        let y = TITLE_ROW * (n as f64 + 1.0) - above;
        let _ = write!(out, "<text class=\"head\" x=\"0\" y=\"{y}\">{}</text>", escaped(line));
    }
    let _ = writeln!(out, "{}</svg>", drawing.body);
    out
}

fn title_lines(title: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in title.split_whitespace() {
        let line = lines.last_mut().map_or(0, |line| line.chars().count());
        if line > 0 && line + word.chars().count() >= TITLE_LETTERS {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

fn draw(chart: &Chart) -> Drawing {
    match chart {
        Chart::Plot(it) => plot::draw(it),
        Chart::Stack(it) => rows::stack(it),
        Chart::Waterfall(it) => rows::waterfall(it),
        Chart::Matrix(it) => grid::matrix(it),
        Chart::Heat(it) => grid::heat(it),
    }
}
