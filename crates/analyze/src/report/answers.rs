//! Tables of what was answered: the smallest calls that show a difference, and what is served.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::conclude::verdict::see;
use crate::experiment::TryFate;
use crate::method_list::methods;
use crate::record::{RunRecord, Trial};
use crate::text::escaped;

/// Differences that are listed.
const EXAMPLES_MAX: usize = 20;

/// Calls that show a difference, the smallest first, each with a line for a shell. They stand below
/// the target's chart of `agree`.
pub(super) fn differences(out: &mut String, run: &RunRecord, trial: &Trial<'_>, all: &[Trial<'_>]) {
    let questions = see::questions(all);
    let mut shown: Vec<_> = questions
        .values()
        .filter(|question| question.differs(trial.target) == Some(true))
        .filter_map(|question| question.shown(trial.target))
        .collect();
    shown.sort_by_key(|shown| (shown.params.len(), shown.method, shown.params, shown.path));
    shown.dedup_by_key(|shown| (shown.method, shown.params, shown.path));
    if shown.is_empty() {
        return;
    }
    let _ = write!(
        out,
        "<details><summary>{} of {} calls that show it</summary><div class=\"wide\"><table>\
         <thead><tr><th>call</th><th>where</th><th>here</th><th>there</th><th>at</th>\
         <th>reproduce with</th></tr></thead><tbody>",
        shown.len().min(EXAMPLES_MAX),
        shown.len()
    );
    for it in shown.iter().take(EXAMPLES_MAX) {
        let against = run.targets.get(it.against as usize).map_or("?", |target| &target.id);
        let _ = write!(
            out,
            "<tr><td><code>{} {}</code></td><td><code>{}</code></td><td><code>{}</code></td>\
             <td><code>{}</code></td><td>{}</td><td><code>{}</code></td></tr>",
            escaped(it.method),
            escaped(it.params),
            escaped(it.path),
            escaped(it.here),
            escaped(it.there),
            escaped(against),
            escaped(&it.curl(trial.target))
        );
    }
    out.push_str("</tbody></table></div></details>\n");
}

/// What came of each method, by target.
type MethodFates<'a> = BTreeMap<u32, BTreeMap<&'a str, TryFate>>;

/// Methods by namespace, the targets side by side, below all targets of `reach`.
pub(super) fn served(out: &mut String, run: &RunRecord, all: &[Trial<'_>]) {
    let fates: MethodFates<'_> = all
        .iter()
        .filter(|trial| trial.experiment == "reach")
        .map(|trial| (trial.target, see::methods(trial)))
        .collect();
    let spaces = namespaces(&fates);
    if spaces.is_empty() {
        return;
    }
    let of_targets: Vec<_> = (0..).zip(&run.targets).map(|(index, _)| fates.get(&index)).collect();
    table_head(out, "methods served, by namespace", run);
    for (space, names) in &spaces {
        let _ = write!(out, "<tr><td>{}</td>", escaped(space));
        for fates in &of_targets {
            let tried: Vec<TryFate> = names
                .iter()
                .filter_map(|name| fates.and_then(|it| it.get(name).copied()))
                .collect();
            let served = tried.iter().filter(|fate| **fate == TryFate::Served).count();
            let text = match tried.len() {
                0 => String::new(),
                tried => format!("{served} of {tried}"),
            };
            let _ = write!(out, "<td class=\"n\">{text}</td>");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    out.push_str("<details class=\"beside\"><summary>all methods, side by side</summary>");
    table_head(out, "method", run);
    for name in spaces.values().flatten() {
        let _ = write!(out, "<tr><td>{}</td>", escaped(name));
        for fates in &of_targets {
            out.push_str(match fates.and_then(|it| it.get(name)) {
                Some(TryFate::Served) => "<td class=\"n\">yes</td>",
                Some(TryFate::Refused) => "<td class=\"n bad\">no</td>",
                Some(TryFate::Open) => "<td class=\"n\">?</td>",
                None => "<td></td>",
            });
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div></details>\n");
}

/// The methods that were tried anywhere, sorted, by namespace.
fn namespaces<'a>(fates: &MethodFates<'a>) -> BTreeMap<&'static str, BTreeSet<&'a str>> {
    let mut spaces: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for name in fates.values().flat_map(BTreeMap::keys) {
        let listed = methods().iter().find(|listed| listed.name == *name);
        let space = listed.map_or("others", |listed| listed.namespace);
        spaces.entry(space).or_default().insert(name);
    }
    spaces
}

/// A column for `what`, and one for each target.
fn table_head(out: &mut String, what: &str, run: &RunRecord) {
    let _ = write!(out, "<div class=\"wide\"><table><thead><tr><th>{what}</th>");
    for target in &run.targets {
        let _ = write!(out, "<th class=\"n\">{}</th>", escaped(&target.id));
    }
    out.push_str("</tr></thead><tbody>\n");
}
