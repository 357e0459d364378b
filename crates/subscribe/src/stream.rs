//! Events that belong to no block of the journal, in order, for any number of readers.
//!
//! The ring is bounded in number and bytes; at the bound the oldest go. What that means to a reader
//! that had not read them depends on the kind, and is decided where it reads.

use crate::notification::Notification;
use crate::ring::{Ring, RingReader};

/// The bounds of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamBounds {
    /// Events at most.
    pub events_max: usize,
    /// Bytes at most, of which the newest event is kept in any case.
    pub bytes_max: usize,
}

/// An event of a stream: cheap to clone, and of a size that does not change.
pub trait StreamEvent: Clone {
    /// The bytes that it counts for.
    fn bytes_held(&self) -> usize;
}

impl StreamEvent for Notification {
    fn bytes_held(&self) -> usize {
        self.len()
    }
}

/// The writer's end.
#[derive(Debug)]
pub struct EventStream<T> {
    ring: Ring<T>,
    bounds: StreamBounds,
    bytes_held: usize,
}

impl<T: StreamEvent> EventStream<T> {
    /// A stream without events.
    pub fn new(bounds: StreamBounds) -> Self {
        Self { ring: Ring::new(), bounds, bytes_held: 0 }
    }

    /// A reader's end.
    pub fn reader(&self) -> RingReader<T> {
        self.ring.reader()
    }

    /// Appends an event.
    pub fn push(&mut self, event: T) {
        let view = self.ring.view();
        self.bytes_held += event.bytes_held();
        let (mut dropped, mut left) = (0, view.len() + 1);
        for (_, oldest) in view.iter() {
            if left <= self.bounds.events_max && self.bytes_held <= self.bounds.bytes_max {
                break;
            }
            self.bytes_held -= oldest.bytes_held();
            dropped += 1;
            left -= 1;
        }
        self.ring.append(dropped, [event]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(stream: &EventStream<Notification>) -> Vec<String> {
        let view = stream.reader().load();
        let text = |it: &Notification| String::from_utf8_lossy(&it.result()).into_owned();
        view.iter().map(|(_, it)| text(it)).collect()
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many() {
        let bounds = StreamBounds { events_max: 3, bytes_max: usize::MAX };
        let mut stream = EventStream::new(bounds);
        for number in 0..5 {
            stream.push(Notification::new(number.to_string().as_bytes()));
        }
        assert_eq!(told(&stream), ["2", "3", "4"]);
        let one = Notification::new(b"2").len();
        assert_eq!(stream.bytes_held, 3 * one);
        assert_eq!(stream.reader().load().newest(), stream.reader().load().oldest().next().next());
    }

    #[test]
    fn the_oldest_go_when_they_have_too_many_bytes_and_the_newest_stays() {
        let one = Notification::new(b"1").len();
        let bounds = StreamBounds { events_max: 100, bytes_max: 2 * one };
        let mut stream = EventStream::new(bounds);
        for number in 0..5 {
            stream.push(Notification::new(number.to_string().as_bytes()));
        }
        assert_eq!((told(&stream), stream.bytes_held), (vec!["3".into(), "4".into()], 2 * one));
        stream.push(Notification::new(&[b'7'; 1000]));
        assert_eq!(told(&stream).len(), 1);
        stream.push(Notification::new(b"8"));
        assert_eq!((told(&stream), stream.bytes_held), (vec!["8".into()], one));
    }
}
