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
  const saved = [];
  HTMLAnchorElement.prototype.click = function () {
    saved.push(`${this.download.split(".").pop()} ${this.href.split(/[;,]/)[0]} ${this.href.length > 60}`);
  };
  // Text that leaves its chart, and texts of a chart that cover each other.
  const crossed = (svg) => {
    const boxes = [...svg.querySelectorAll("text")].map((node) => [node.textContent, node.getBBox()]);
    const found = [];
    const { width, height } = svg.viewBox.baseVal;
    boxes.forEach(([words, box], i) => {
      if (box.x < -1 || box.x + box.width > width + 1 || box.y < -1 || box.y + box.height > height + 1) {
        found.push(`cut off: ${words}`);
      }
      for (const [other, it] of boxes.slice(i + 1)) {
        const wide = Math.min(box.x + box.width, it.x + it.width) - Math.max(box.x, it.x);
        const high = Math.min(box.y + box.height, it.y + it.height) - Math.max(box.y, it.y);
        if (wide > 1 && high > 5) found.push(`${words} over ${other}`);
      }
    });
    return found.map((it) => `${svg.querySelector("title").textContent}: ${it}`);
  };
  const look = () => {
    const root = document.documentElement;
    const figures = [...document.querySelectorAll("figure[data-chart]")];
    const inks = "path.line, path.dots, path.bar, path.fill, path.dashed, circle";
    const inked = (node) => {
      const box = node.getBBox();
      return box.width > 0 || box.height > 0;
    };
    const shown = (figure) => [...figure.querySelectorAll(inks)].some(inked);
    const empty = figures.filter((figure) => !shown(figure));
    const texts = figures.flatMap((figure) => crossed(figure.querySelector("svg")));
    const small = figures.filter((figure) => {
      const svg = figure.querySelector("svg");
      return (svg.getBoundingClientRect().width / svg.viewBox.baseVal.width) * 12 < 9;
    });
    const wide = [...document.body.querySelectorAll("*")].filter((node) => {
      const box = node.getBoundingClientRect();
      return box.width > 0 && box.right > innerWidth + 1 && !node.closest(".wide, .rows, .matrix, svg, pre");
    });
    const overflow = root.scrollWidth > innerWidth ? [`${root.scrollWidth} of ${innerWidth}`] : [];
    const seen = {
      errors,
      width: innerWidth,
      overflow: overflow.concat(overflow.length ? wide.slice(0, 5).map((it) => it.outerHTML.slice(0, 120)) : []),
      empty: empty.map((figure) => figure.innerText.slice(0, 80)),
      texts,
      small: small.map((figure) => figure.innerText.slice(0, 80)),
      saved,
      charts: figures.filter(shown).length,
      planned: JSON.parse(document.getElementById("charts").textContent).length,
      is_dark: root.dataset.theme === "dark",
      height: root.scrollHeight,
    };
    parent.postMessage(JSON.stringify(seen), "*");
  };
  addEventListener("load", () => {
    document.querySelectorAll("figure[data-chart]:first-of-type .save").forEach((it, n) => n < 3 && it.click());
    setTimeout(look, 600);
  });
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
    /// Text of charts that is cut off or covered.
    pub(crate) texts: Vec<String>,
    /// Charts whose letters are too small to be read.
    pub(crate) small: Vec<String>,
    /// Files that were saved when the buttons of a chart were pressed.
    pub(crate) saved: Vec<String>,
    /// Charts that are drawn.
    pub(crate) charts: usize,
    /// Charts that are in the data.
    pub(crate) planned: usize,
    pub(crate) is_dark: bool,
    /// Of the whole page, pixels.
    height: u32,
}

/// Looks at `page` in a window of `width`; its picture is kept beside it if one is wanted.
///
/// # Panics
///
/// Where there is no Chromium, or it does not show the page.
pub(crate) fn look(page: &Path, name: &str, width: u32, is_dark: bool, is_kept: bool) -> Seen {
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
    let seen = rest.split_once('"').unwrap().0.replace("&quot;", "\"");
    let seen = seen.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let seen: Seen = serde_json::from_str(&seen).unwrap();
    if is_kept {
        let shot = format!("--screenshot={}", dir.join(format!("{name}.png")).display());
        let high = frame(seen.height);
        chromium(dir, &high, width.max(600), seen.height, is_dark, &[&shot]);
    }
    seen
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
