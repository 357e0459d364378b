//! Notifications that belong to no block of the journal, in order, for any number of readers.
//!
//! The ring is bounded in number and bytes; at the bound the oldest go. What that means to a reader
//! that had not read them depends on the kind, and is decided where it reads.

use std::sync::Arc;

use crate::notification::Notification;
use crate::ring::{Cursor, Ring, RingReader, RingView};

/// The bounds of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamBounds {
    /// Notifications at most.
    pub events_max: usize,
    /// Bytes at most, of which the newest notification is kept in any case.
    pub bytes_max: usize,
}

/// The writer's end.
#[derive(Debug)]
pub struct NotificationStream {
    ring: Ring<Notification>,
    bounds: StreamBounds,
    bytes_held: usize,
}

impl NotificationStream {
    /// A stream without notifications.
    pub fn new(bounds: StreamBounds) -> Self {
        Self { ring: Ring::new(), bounds, bytes_held: 0 }
    }

    /// A reader's end.
    pub fn reader(&self) -> NotificationReader {
        NotificationReader { ring: self.ring.reader() }
    }

    /// Appends a notification.
    pub fn push(&mut self, notification: Notification) {
        let view = self.ring.view();
        self.bytes_held += notification.len();
        let (mut dropped, mut left) = (0, view.len() + 1);
        for (_, oldest) in view.iter() {
            if left <= self.bounds.events_max && self.bytes_held <= self.bounds.bytes_max {
                break;
            }
            self.bytes_held -= oldest.len();
            dropped += 1;
            left -= 1;
        }
        self.ring.append(dropped, [notification]);
    }

    /// How many bytes its notifications hold.
    pub fn bytes_held(&self) -> usize {
        self.bytes_held
    }
}

/// A reader's end. Clones read the one stream.
#[derive(Debug, Clone)]
pub struct NotificationReader {
    ring: RingReader<Notification>,
}

impl NotificationReader {
    /// The notifications as they are now: one atomic load, no lock.
    pub fn load(&self) -> Arc<RingView<Notification>> {
        self.ring.load()
    }

    /// The place behind the newest notification.
    pub fn tip(&self) -> Cursor {
        self.load().tip()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(stream: &NotificationStream) -> Vec<String> {
        let view = stream.reader().load();
        let text = |it: &Notification| String::from_utf8_lossy(&it.result()).into_owned();
        view.iter().map(|(_, it)| text(it)).collect()
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many() {
        let bounds = StreamBounds { events_max: 3, bytes_max: usize::MAX };
        let mut stream = NotificationStream::new(bounds);
        for number in 0..5 {
            stream.push(Notification::new(number.to_string().as_bytes()));
        }
        assert_eq!(told(&stream), ["2", "3", "4"]);
        let one = Notification::new(b"2").len();
        assert_eq!(stream.bytes_held(), 3 * one);
        assert_eq!(stream.reader().load().newest(), stream.reader().load().oldest().next().next());
    }

    #[test]
    fn the_oldest_go_when_they_have_too_many_bytes_and_the_newest_stays() {
        let one = Notification::new(b"1").len();
        let bounds = StreamBounds { events_max: 100, bytes_max: 2 * one };
        let mut stream = NotificationStream::new(bounds);
        for number in 0..5 {
            stream.push(Notification::new(number.to_string().as_bytes()));
        }
        assert_eq!((told(&stream), stream.bytes_held()), (vec!["3".into(), "4".into()], 2 * one));
        stream.push(Notification::new(&[b'7'; 1000]));
        assert_eq!(told(&stream).len(), 1);
        stream.push(Notification::new(b"8"));
        assert_eq!((told(&stream), stream.bytes_held()), (vec!["8".into()], one));
    }
}
