//! The keys in a config of nodecore, for `wellhead key import`.
//!
//! Here because the YAML parser is known to this module alone. Nothing else of such a config is read.

use std::ops::Range;

use wellhead_access::{MethodRightsSettings, RightsSettings};
use wellhead_telemetry::Secret;

use super::file;
use super::tree::{self, Node, NodeKind};

/// One key of another proxy.
#[derive(Debug)]
pub(crate) struct ForeignEntry {
    pub(crate) line: usize,
    pub(crate) secret: Secret,
    pub(crate) note: Option<String>,
    pub(crate) rights: RightsSettings,
}

/// The keys of `auth.key-management`, and problems with their lines, which quote nothing.
pub(crate) fn nodecore_keys(source: &str) -> (Vec<ForeignEntry>, Vec<String>) {
    let line_of = |span: &Range<usize>| file::line_of(source.as_bytes(), span.start);
    let (mut problems, mut dropped) = (Vec::new(), Vec::new());
    let root = tree::parse(source, &mut problems, &mut dropped);
    if !problems.is_empty() {
        let told = problems.iter().map(|problem| {
            let line = problem.span.as_ref().map_or(1, line_of);
            format!("line {line}: {}", problem.message)
        });
        return (Vec::new(), told.collect());
    }
    let listed = root.as_ref().and_then(|root| at(root, &["auth", "key-management"]));
    let (mut keys, mut wrong) = (Vec::new(), Vec::new());
    let Some(NodeKind::List(items)) = listed.map(|node| &node.kind) else { return (keys, wrong) };
    for item in items {
        let Some((place, secret)) =
            at(item, &["local", "key"]).and_then(|it| Some((it, text(it)?)))
        else {
            let line = line_of(&item.span);
            wrong.push(format!(
                "line {line}: there is no `local.key`: keys of another type are not in the file"
            ));
            continue;
        };
        let texts = |path: &[&str]| at(item, path).map(texts).unwrap_or_default();
        let some = |path: &[&str]| Some(texts(path)).filter(|texts| !texts.is_empty());
        let rights = RightsSettings {
            networks: some(&["local", "settings", "allowed-ips"]),
            methods: MethodRightsSettings {
                allow: some(&["local", "settings", "methods", "allowed"]),
                deny: texts(&["local", "settings", "methods", "forbidden"]),
            },
            contracts: some(&["local", "settings", "contracts", "allowed"]),
            ..RightsSettings::default()
        };
        let (line, note) = (line_of(&place.span), at(item, &["id"]).and_then(text));
        keys.push(ForeignEntry { line, secret: Secret::new(secret), note, rights });
    }
    (keys, wrong)
}

fn at<'n>(node: &'n Node, path: &[&str]) -> Option<&'n Node> {
    path.iter().try_fold(node, |node, key| node.get(key).map(|entry| &entry.value))
}

fn text(node: &Node) -> Option<String> {
    let NodeKind::Scalar { text, .. } = &node.kind else { return None };
    Some(text.clone())
}

fn texts(node: &Node) -> Vec<String> {
    let NodeKind::List(items) = &node.kind else { return Vec::new() };
    items.iter().filter_map(text).collect()
}
