//! The pages under `docs/`, and files under `deploy/`, that are written from the code, and never by hand.
//!
//! One table says which function writes which file. The text itself belongs to
//! the crate that knows the facts; here it is only written or compared.

use std::path::Path;

use crate::dashboards;

/// A page: where it lies, and what writes it.
struct GeneratedPage {
    path: &'static str,
    text: fn() -> String,
}

const PAGES: &[GeneratedPage] = &[
    GeneratedPage { path: "docs/analyze-sentences.md", text: crate::sentences::page },
    GeneratedPage { path: "docs/config.md", text: wellhead_app::config::docs::page },
    GeneratedPage { path: "docs/logging.md", text: crate::log_events::page },
    GeneratedPage { path: "docs/methods.md", text: wellhead_eth::docs::methods_page },
    GeneratedPage { path: "docs/metrics.md", text: wellhead_app::metrics::page },
    GeneratedPage { path: "docs/providers.md", text: wellhead_upstream::docs::providers_page },
    GeneratedPage { path: "docs/verdicts.md", text: wellhead_upstream::docs::verdicts_page },
    GeneratedPage { path: "docs/verify.md", text: wellhead_verify::docs::verify_page },
    GeneratedPage { path: "deploy/grafana/overview.json", text: dashboards::overview },
    GeneratedPage { path: "deploy/grafana/upstream.json", text: dashboards::upstream },
    GeneratedPage { path: "deploy/grafana/tenants.json", text: dashboards::tenants },
    // A chart holds what it installs.
    GeneratedPage {
        path: "deploy/helm/wellhead/files/rules.yaml",
        text: || include_str!("../../deploy/prometheus/rules.yaml").to_owned(),
    },
    GeneratedPage {
        path: "deploy/helm/wellhead/files/dashboards/overview.json",
        text: dashboards::overview,
    },
    GeneratedPage {
        path: "deploy/helm/wellhead/files/dashboards/upstream.json",
        text: dashboards::upstream,
    },
    GeneratedPage {
        path: "deploy/helm/wellhead/files/dashboards/tenants.json",
        text: dashboards::tenants,
    },
];

/// Writes each page that differs.
pub(crate) fn write(root: &Path) -> Result<Vec<String>, String> {
    for page in PAGES {
        let path = root.join(page.path);
        let text = (page.text)();
        if std::fs::read_to_string(&path).is_ok_and(|present| present == text) {
            continue;
        }
        std::fs::write(&path, text).map_err(|why| format!("{}: {why}", page.path))?;
        println!("wrote {}", page.path);
    }
    Ok(Vec::new())
}

/// Names each page that is not what the code would write.
pub(crate) fn check(root: &Path) -> Result<Vec<String>, String> {
    Ok(stale(PAGES, |path| std::fs::read_to_string(root.join(path)).ok()))
}

fn stale(pages: &[GeneratedPage], read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let is_stale =
        |page: &&GeneratedPage| read(page.path).as_deref() != Some((page.text)().as_str());
    let say = |page: &GeneratedPage| format!("{}: stale; `make docs` writes it anew", page.path);
    pages.iter().filter(is_stale).map(say).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(present: Option<&str>, expected: &[&str]) {
        let pages = [GeneratedPage { path: "docs/x.md", text: || "right".to_owned() }];
        assert_eq!(stale(&pages, |_| present.map(str::to_owned)), expected);
    }

    #[test]
    fn fresh_page() {
        check(Some("right"), &[]);
    }
    #[test]
    fn stale_page() {
        check(Some("old"), &["docs/x.md: stale; `make docs` writes it anew"]);
    }
    #[test]
    fn absent_page() {
        check(None, &["docs/x.md: stale; `make docs` writes it anew"]);
    }
}
