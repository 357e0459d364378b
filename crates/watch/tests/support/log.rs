//! Log lines of this thread, for tests of what is said and how often.

use std::cell::RefCell;
use std::fmt::{Debug, Write};
use std::sync::{Arc, Once};

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

thread_local! {
    static HERE: RefCell<Option<Lines>> = const { RefCell::new(None) };
}

/// Lines as `WARN message name=value`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    /// Collects what this thread says from now on.
    pub(crate) fn collect() -> Self {
        // One subscriber for all threads: those that come and go confuse the caches
        // of tracing about who wants which line.
        static ROUTER: Once = Once::new();
        ROUTER.call_once(|| {
            tracing::subscriber::set_global_default(Router).expect("it is set here alone");
        });
        let lines = Self::default();
        HERE.set(Some(lines.clone()));
        lines
    }

    pub(crate) fn with(&self, words: &str) -> usize {
        self.0.lock().iter().filter(|line| line.contains(words)).count()
    }
}

struct Router;

struct Words(String);

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let written = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
        written.expect("writing to a string");
    }
}

impl Subscriber for Router {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let Some(lines) = HERE.with_borrow(Clone::clone) else { return };
        let mut words = Words(event.metadata().level().to_string());
        event.record(&mut words);
        lines.0.lock().push(words.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
