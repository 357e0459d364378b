//! Catches what the proxy logs and hands it to the scenario of this thread.
//!
//! One subscriber for the whole process, since the scenarios run side by side: which of
//! them wrote a line is known by the thread.

use std::cell::RefCell;
use std::fmt::Write;
use std::sync::{Arc, Once};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::record::Recorder;

thread_local! {
    static RECORDER: RefCell<Option<Arc<Recorder>>> = const { RefCell::new(None) };
}

/// Lines of this thread go to `recorder` until the guard is dropped.
pub fn catch(recorder: &Arc<Recorder>) -> Caught {
    static START: Once = Once::new();
    START.call_once(|| {
        // Nothing else in this process listens.
        let _ = tracing::subscriber::set_global_default(Catcher);
    });
    RECORDER.set(Some(Arc::clone(recorder)));
    Caught(())
}

/// While it lives, the lines of its thread are caught.
#[derive(Debug)]
pub struct Caught(());

impl Drop for Caught {
    fn drop(&mut self) {
        RECORDER.set(None);
    }
}

struct Catcher;

impl Subscriber for Catcher {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::DEBUG && metadata.target().starts_with("wellhead")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let recorder = RECORDER.with_borrow(Option::clone);
        let Some(recorder) = recorder else { return };
        let mut line = Line(format!("{} {}:", event.metadata().level(), event.metadata().target()));
        event.record(&mut line);
        recorder.log(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a String cannot fail.
        let _ = write!(self.0, " {}={value:?}", field.name());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let _ = write!(self.0, " {}={value}", field.name());
    }
}
