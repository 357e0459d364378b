//! A page in headless Chromium, and what is seen there.
//!
//! A script is put before all others of a copy of the page. It notes errors from the first line on,
//! looks around when all is drawn, and leaves what it saw in the document, which Chromium then
//! prints. The page stands in a frame of the width asked for: a window does not become as narrow as
//! a phone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

/// Programs that are Chromium, the first that is there is taken.
const NAMES: [&str; 5] =
    ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome"];

const PROBE: &str = r#"<script>
(() => {
  const errors = [];
  addEventListener("error", (event) => errors.push(String(event.message || event.target)), true);
  addEventListener("unhandledrejection", (event) => errors.push(String(event.reason)));
  addEventListener("securitypolicyviolation", (event) => errors.push(event.violatedDirective));
  for (const level of ["error", "warn"]) console[level] = (...words) => errors.push(words.join(" "));
  const inked = (canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    for (let at = 3; at < data.length; at += 4) if (data[at]) return true;
    return false;
  };
  const look = () => {
    const root = document.documentElement;
    const figures = [...document.querySelectorAll("figure[data-chart]")];
    const shown = (figure) => figure.querySelector(".canvas")?.childElementCount > 0;
    const empty = figures.filter((figure) => {
      const canvas = figure.querySelector("canvas");
      return !shown(figure) || (canvas && !inked(canvas));
    });
    const wide = [...document.body.querySelectorAll("*")].filter((node) => {
      const box = node.getBoundingClientRect();
      return box.width > 0 && box.right > innerWidth + 1 && !node.closest(".wide, .rows, .u-wrap");
    });
    const overflow = root.scrollWidth > innerWidth ? [`${root.scrollWidth} of ${innerWidth}`] : [];
    const seen = {
      errors,
      width: innerWidth,
      overflow: overflow.concat(overflow.length ? wide.slice(0, 5).map((it) => it.outerHTML.slice(0, 120)) : []),
      empty: empty.map((figure) => figure.innerText.slice(0, 80)),
      charts: figures.filter(shown).length,
      planned: JSON.parse(document.getElementById("charts").textContent).length,
      is_dark: root.dataset.theme === "dark",
      height: root.scrollHeight,
    };
    parent.postMessage(JSON.stringify(seen), "*");
  };
  addEventListener("load", () => setTimeout(look, 300));
})();
</script>"#;

/// What was seen.
#[derive(Debug, Deserialize)]
pub(crate) struct Seen {
    /// Of the console and of scripts.
    pub(crate) errors: Vec<String>,
    /// Pixels.
    pub(crate) width: u32,
    /// What stands out on the right.
    pub(crate) overflow: Vec<String>,
    /// Charts with nothing drawn.
    pub(crate) empty: Vec<String>,
    /// Charts that are drawn.
    pub(crate) charts: usize,
    /// Charts that are in the data.
    pub(crate) planned: usize,
    pub(crate) is_dark: bool,
    /// Of the whole page, pixels.
    height: u32,
    /// The whole page, beside it.
    #[serde(skip)]
    pub(crate) picture: PathBuf,
}

/// Looks at `page` in a window of `width`, and takes its picture.
///
/// # Panics
///
/// Where there is no Chromium, or it does not show the page.
pub(crate) fn look(page: &Path, name: &str, width: u32, is_dark: bool) -> Seen {
    let dir = page.parent().unwrap();
    let text = fs::read_to_string(page).unwrap();
    let probed = text.replacen("<head>", &format!("<head>{PROBE}"), 1);
    assert_ne!(probed, text, "the page has a head");
    fs::write(dir.join("probed.html"), probed).unwrap();
    let frame = |height: u32| {
        let style = format!("border:0;width:{width}px;height:{height}px");
        let frame = dir.join(format!("frame-{name}.html"));
        let text = format!(
            "<!doctype html><style>body{{margin:0}}</style><script>\
             addEventListener('message', (event) => document.body.dataset.seen = event.data)\
             </script><body><iframe src=\"probed.html\" style=\"{style}\"></iframe>"
        );
        fs::write(&frame, text).unwrap();
        frame
    };
    let shown = frame(900);
    let dom = chromium(dir, &shown, width.max(600), 900, is_dark, &["--dump-dom"]);
    let (_, rest) = dom.split_once("data-seen=\"").unwrap_or_else(|| panic!("no look: {dom}"));
    let seen = rest.split_once('"').unwrap().0.replace("&quot;", "\"").replace("&amp;", "&");
    let seen: Seen = serde_json::from_str(&seen).unwrap();
    let picture = dir.join(format!("{name}.png"));
    let shot = format!("--screenshot={}", picture.display());
    let high = frame(seen.height);
    chromium(dir, &high, width.max(600), seen.height, is_dark, &[&shot]);
    assert!(picture.exists(), "a picture");
    Seen { picture, ..seen }
}

fn chromium(
    home: &Path,
    page: &Path,
    width: u32,
    height: u32,
    is_dark: bool,
    more: &[&str],
) -> String {
    let program = NAMES.into_iter().find_map(found).unwrap_or_else(|| {
        panic!("no Chromium: install one (Debian: apt-get install chromium-headless-shell)")
    });
    let mut command = Command::new(program);
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
        .args(["--allow-file-access-from-files", "--virtual-time-budget=5000"])
        .arg(format!("--window-size={width},{height}"))
        .arg(format!("--user-data-dir={}", home.join("profile").display()))
        .args(more);
    if is_dark {
        command.arg("--blink-settings=preferredColorScheme=0");
    } else {
        command.arg("--blink-settings=preferredColorScheme=1");
    }
    let output = command.arg(format!("file://{}", page.display())).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn found(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|program| program.is_file())
}
