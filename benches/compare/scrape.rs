//! Reads a contender's metrics once a second, as a monitoring system does.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(1);
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Where a contender tells its metrics.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    pub(crate) port: u16,
    pub(crate) path: &'static str,
}

/// A thread that reads until it is told to end.
pub(crate) struct Scraper {
    thread: JoinHandle<u64>,
    end: Sender<()>,
}

impl Scraper {
    pub(crate) fn start(metrics: &Metrics) -> Self {
        let (end, ended) = channel();
        let metrics = metrics.clone();
        let thread = std::thread::spawn(move || {
            let mut errors = 0;
            loop {
                if let Err(why) = scrape(&metrics) {
                    println!("  the metrics were not told: {why}");
                    errors += 1;
                }
                if ended.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
                    return errors;
                }
            }
        });
        Self { thread, end }
    }

    /// How often it got no metrics.
    pub(crate) fn finish(self) -> u64 {
        drop(self.end);
        self.thread.join().expect("it does not panic")
    }
}

/// The sum of all lines of this name that have each of these labels.
pub(crate) fn sum(metrics: &Metrics, name: &str, labels: &[&str]) -> io::Result<f64> {
    let answer = scrape(metrics)?;
    let lines = answer.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
    let lines = lines.filter(|line| labels.iter().all(|label| line.contains(label)));
    Ok(lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum())
}

fn scrape(metrics: &Metrics) -> io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, metrics.port))?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    let path = metrics.path;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    if answer.starts_with("HTTP/1.1 200") {
        return Ok(answer);
    }
    Err(io::Error::other(answer.lines().next().unwrap_or_default().to_owned()))
}
