//! Log set-up: text for people, JSON for collectors; and another filter for a while ([`LogControl`]).

use std::fmt;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt as _;

/// How a line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// Text on a terminal, JSON otherwise.
    #[default]
    Auto,
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Libraries whose finer levels print headers, and with them keys. Held at these levels
/// whatever the settings say. h2 warns of each connection that it ends for a flood, as often as
/// clients please: the listener counts those, and tells of one a minute.
const HELD: &str = "h2=error,hyper=warn,rustls=warn,tokio_tungstenite=warn,tungstenite=warn";

/// For messages.
const LEVELS: &str = "off, error, warn, info, debug, trace";

/// The level of what no directive names.
const UNNAMED: &str = "error";

/// Lines of the target `audit` name each change and its author. They are written whatever the general level is; the
/// settings can still name the target.
const AUDIT: &str = "audit=info";

/// The only target that a filter for a while may not name: no one hides a change that way.
const AUDIT_TARGET: &str = "audit";

/// Directives of one filter; more are a mistake.
const FILTER_BYTES_MAX: usize = 1024;

fn filter(level: &str) -> Result<Targets, String> {
    // A module of a held library would win over the library, as the longer target does.
    let is_held = |directive: &&str| {
        let mut libraries = HELD.split(',').filter_map(|held| held.split('=').next());
        libraries.any(|library| {
            let module = directive.strip_prefix(library);
            module.is_some_and(|module| module.starts_with("::"))
        })
    };
    let directives: Vec<&str> = level.split(',').map(str::trim).collect();
    if let Some(wrong) = directives.iter().find(|directive| !is_directive(directive)) {
        return Err(format!("`{wrong}` is no level ({LEVELS}) and no `module=level`"));
    }
    let kept: Vec<&str> = directives.into_iter().filter(|it| !is_held(it)).collect();
    let all = format!("{UNNAMED},{AUDIT},{},{HELD}", kept.join(","));
    all.parse::<Targets>().map_err(|error| error.to_string())
}

/// Whether it is a level, or a level of the lines of one target. The parser takes any word for a target.
fn is_directive(text: &str) -> bool {
    let (target, level) = text.split_once('=').unwrap_or(("all", text));
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || "_:.-".contains(letter);
    let is_target = !target.is_empty() && target.chars().all(is_of_name);
    is_target && level.parse::<LevelFilter>().is_ok() && !level.is_empty()
}

/// Why a filter cannot be taken into use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// It is not a filter, or not one for a while; in words.
    #[error("{0}")]
    Wrong(String),
    /// The subscriber is gone.
    #[error("the log cannot be changed any more")]
    Gone,
}

/// Puts a filter into use.
type Reload = Box<dyn Fn(Targets) -> Result<(), FilterError> + Send + Sync>;

/// The filter of the log, which can be another one for a while.
///
/// Keeps no time: a caller that sets one for a while has to [`reset`](Self::reset) it.
pub struct LogControl {
    configured: String,
    reload: Reload,
    /// What holds over the settings, with the number of its setting.
    present: Mutex<PresentFilter>,
}

/// What holds over the filter of the settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PresentFilter {
    /// The directives, if any.
    pub over: Option<String>,
    /// How often it was set or reset so far.
    pub changes: u64,
}

impl fmt::Debug for LogControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogControl").field("configured", &self.configured).finish_non_exhaustive()
    }
}

impl LogControl {
    fn new(configured: &str, reload: Reload) -> Self {
        Self { configured: configured.to_owned(), reload, present: Mutex::default() }
    }

    /// The filter of the settings.
    pub fn configured(&self) -> &str {
        &self.configured
    }

    /// What holds over it now.
    pub fn present(&self) -> PresentFilter {
        self.locked().clone()
    }

    /// Lets these directives hold over those of the settings: a level alone is the new general
    /// level, `module=level` changes one module. What held before is replaced. Returns the number of the change.
    ///
    /// # Errors
    ///
    /// If it is no filter, or names the target `audit`; nothing is changed then.
    pub fn set(&self, over: &str) -> Result<u64, FilterError> {
        let over = over.trim();
        if over.is_empty() || over.len() > FILTER_BYTES_MAX {
            let words = format!("a filter has 1 to {FILTER_BYTES_MAX} characters");
            return Err(FilterError::Wrong(words));
        }
        let target = |directive: &str| {
            let end = directive.find(['=', '[']).unwrap_or(directive.len());
            directive[..end].trim().to_owned()
        };
        if over.split(',').any(|directive| target(directive).starts_with(AUDIT_TARGET)) {
            let words = "the target `audit` is for the settings alone";
            return Err(FilterError::Wrong(words.to_owned()));
        }
        let mut present = self.locked();
        let made = filter(&format!("{},{over}", self.configured)).map_err(FilterError::Wrong)?;
        (self.reload)(made)?;
        present.over = Some(over.to_owned());
        present.changes += 1;
        Ok(present.changes)
    }

    /// Lets the filter of the settings hold again. With `change`, only if nothing changed since that one;
    /// whether it did something.
    ///
    /// # Errors
    ///
    /// If the subscriber is gone.
    pub fn reset(&self, change: Option<u64>) -> Result<bool, FilterError> {
        let mut present = self.locked();
        let is_overtaken = change.is_some_and(|change| change != present.changes);
        if present.over.is_none() || is_overtaken {
            return Ok(false);
        }
        (self.reload)(filter(&self.configured).map_err(FilterError::Wrong)?)?;
        present.over = None;
        present.changes += 1;
        Ok(true)
    }

    fn locked(&self) -> MutexGuard<'_, PresentFilter> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Of the subscriber of this process, of which there is one as well.
static CONTROL: OnceLock<Arc<LogControl>> = OnceLock::new();

/// The control of the log, once it was started.
pub fn control() -> Option<Arc<LogControl>> {
    CONTROL.get().cloned()
}

/// Starts logging to standard error. The first call wins; later ones do nothing.
///
/// `level` is a `tracing` filter such as `info` or `wellhead_watch=debug`.
/// Returns the parser's words when it is not one.
pub fn start(level: &str, format: Format) -> Result<(), String> {
    let filter = filter(level)?;
    let terminal = std::io::stderr().is_terminal();
    let json = match format {
        Format::Json => true,
        Format::Text => false,
        Format::Auto => !terminal,
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let (filter, handle) = reload::Layer::new(filter);
    let started = match json {
        true => {
            let lines = lines.json().flatten_event(true).with_current_span(false);
            tracing_subscriber::registry().with(filter).with(lines).try_init()
        }
        false => {
            let lines = lines.with_ansi(terminal).compact();
            tracing_subscriber::registry().with(filter).with(lines).try_init()
        }
    };
    let reload = move |filter| handle.reload(filter).map_err(|_| FilterError::Gone);
    // Only tests start it twice; the first subscriber stays.
    if started.is_ok() {
        let _ = CONTROL.set(Arc::new(LogControl::new(level, Box::new(reload))));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_held_whatever_the_settings_say() {
        let modules = "info,h2::codec=trace, hyper::proto::h1=trace,tungstenite::protocol=debug";
        for level in ["info", "trace", "h2=trace,hyper=debug", modules] {
            let filter = filter(level).expect("a filter").to_string();
            for held in HELD.split(',') {
                assert!(filter.split(',').any(|directive| directive == held), "{level}: {filter}");
            }
            assert!(!filter.contains("h2=trace") && !filter.contains("::"), "{filter}");
        }
        assert!(filter("wellhead_net::h2=debug").expect("a filter").to_string().contains("::h2"));
        for wrong in
            ["info,=", "inof", "", "info,", "a=", "a=loud", "=info", "a[span]=info", "a b=info"]
        {
            assert!(filter(wrong).is_err(), "{wrong}");
        }
        let said = filter("info,inof").expect_err("a slip");
        assert!(said.starts_with("`inof` is no level"), "{said}");
    }

    #[test]
    fn audit_lines_are_written_unless_the_settings_name_them() {
        for (level, expected) in [
            ("off", "audit=info"),
            ("warn", "audit=info"),
            ("info,audit=off", "audit=off"),
            ("audit=debug,error", "audit=debug"),
        ] {
            let filter = filter(level).expect("a filter").to_string();
            let found: Vec<_> = filter.split(',').filter(|it| it.starts_with("audit")).collect();
            assert_eq!(found, [expected], "{level}: {filter}");
        }
    }

    /// A control, and the filters that were put into use.
    fn controlled(configured: &str) -> (LogControl, Arc<Mutex<Vec<String>>>) {
        let used: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&used);
        let reload = move |filter: Targets| {
            seen.lock().expect("no test panics with it").push(filter.to_string());
            Ok(())
        };
        (LogControl::new(configured, Box::new(reload)), used)
    }

    fn last(used: &Mutex<Vec<String>>) -> Vec<String> {
        let used = used.lock().expect("no test panics with it");
        let mut directives: Vec<String> =
            used.last().expect("one was used").split(',').map(str::to_owned).collect();
        directives.retain(|directive| !HELD.contains(directive.as_str()));
        directives.sort();
        directives
    }

    #[test]
    fn a_filter_for_a_while_holds_over_that_of_the_settings() {
        let (control, used) = controlled("info,wellhead_net=warn");
        let first = control.set("wellhead_watch=debug").expect("a filter");
        assert_eq!(
            last(&used),
            ["audit=info", "info", "wellhead_net=warn", "wellhead_watch=debug"]
        );
        let second = control.set(" debug ").expect("a filter");
        assert_eq!(last(&used), ["audit=info", "debug", "wellhead_net=warn"]);
        assert_eq!(control.present().over.as_deref(), Some("debug"));
        // The end of the first one ends nothing that was set since.
        assert_eq!(control.reset(Some(first)), Ok(false));
        assert_eq!(control.reset(Some(second)), Ok(true));
        assert_eq!(last(&used), ["audit=info", "info", "wellhead_net=warn"]);
        assert_eq!((control.reset(None), control.present().over), (Ok(false), None));
    }

    #[test]
    fn what_is_no_filter_changes_nothing() {
        let (control, used) = controlled("info");
        let long = "a=info,".repeat(200);
        for wrong in ["", "  ", "info,=", "audit=off", "info, audit =off", "audit[x]=off", &long] {
            assert!(matches!(control.set(wrong), Err(FilterError::Wrong(_))), "{wrong}");
        }
        assert!(used.lock().expect("no test panics with it").is_empty());
        assert_eq!(control.present(), PresentFilter::default());
    }

    #[test]
    fn libraries_are_held_while_all_is_traced() {
        let (control, used) = controlled("info");
        control.set("trace,h2=trace").expect("a filter");
        let filter = used.lock().expect("no test panics with it")[0].clone();
        assert!(filter.contains("h2=error") && !filter.contains("h2=trace"), "{filter}");
    }
}
