//! Loads that hold much at once: long answers, and thousands of connections.
//!
//! They show what a proxy keeps in memory, and that nothing is lost meanwhile.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

use crate::client::{Client, Request};
use crate::closed::Seen;

const PULL_BUFFER_BYTES: usize = 256 * 1024;
/// Thousands of them are open at once.
const IDLE_BUFFER_BYTES: usize = 1024;
/// Of the idle connections, each so-and-so-manieth is asked whether it lives.
const ASKED_EVERY: usize = 100;
const TOLD_MAX: u64 = 3;

/// Each connection takes so many answers, all at once, and looks that they are whole.
pub(crate) fn pull(port: u16, request: &Request, connections: u32, answers: u32) -> Seen {
    let began = Instant::now();
    let (whole, errors) = (AtomicU64::new(0), AtomicU64::new(0));
    let take = || {
        let mut client = None;
        for _ in 0..answers {
            match on_kept(&mut client, port, request) {
                Ok(()) => _ = whole.fetch_add(1, Ordering::Relaxed),
                Err(why) => {
                    client = None;
                    tell(errors.fetch_add(1, Ordering::Relaxed), &why);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..connections {
            scope.spawn(take);
        }
    });
    Seen {
        requests: whole.into_inner(),
        errors: errors.into_inner(),
        seconds: began.elapsed().as_secs_f64(),
        latency: None,
    }
}

fn on_kept(kept: &mut Option<Client>, port: u16, request: &Request) -> io::Result<()> {
    let client = match kept {
        Some(client) => client,
        None => kept.insert(Client::connect(port, PULL_BUFFER_BYTES)?),
    };
    client.call(request)
}

/// Connections that are open and silent, until it is dropped.
#[derive(Debug)]
pub(crate) struct Crowd {
    clients: Vec<Client>,
    pub(crate) seen: Seen,
}

/// Opens so many, with a call on each: it is then that buffers have been used.
pub(crate) fn crowd(port: u16, request: &Request, connections: u32) -> Crowd {
    let began = Instant::now();
    let mut crowd = Crowd { clients: Vec::new(), seen: Seen::default() };
    for _ in 0..connections {
        let opened = Client::connect(port, IDLE_BUFFER_BYTES)
            .and_then(|mut client| client.call(request).map(|()| client));
        match opened {
            Ok(client) => crowd.clients.push(client),
            Err(why) => crowd.fail(&why),
        }
    }
    crowd.seen.requests = crowd.clients.len() as u64;
    crowd.seen.seconds = began.elapsed().as_secs_f64();
    crowd
}

impl Crowd {
    /// Calls on some of them again: what was measured was open.
    pub(crate) fn ask(&mut self, request: &Request) {
        let asked = self.clients.iter_mut().step_by(ASKED_EVERY);
        let failed: Vec<io::Error> = asked.filter_map(|one| one.call(request).err()).collect();
        for why in failed {
            self.fail(&why);
        }
    }

    fn fail(&mut self, why: &io::Error) {
        tell(self.seen.errors, why);
        self.seen.errors += 1;
    }
}

/// The first few failures in words; all are counted.
fn tell(before: u64, why: &io::Error) {
    if before < TOLD_MAX {
        println!("  failed: {why}");
    }
}
