//! The floor: a process that only writes what wellhead writes, to as many connections, in one loop.

use std::io::{BufRead as _, BufReader, IoSlice, Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use crate::crowd::Crowd;
use crate::servers::PROXY_CORE;
use crate::thread_times::ThreadTimes;

/// About what a head is as a notification of wellhead: the header of the frame, the beginning, the id, the rest.
const PIECES: [usize; 4] = [4, 76, 34, 1_680];
const NAME: &str = "--raw-writer";

/// What the process that writes is started with.
pub(crate) struct WriterArguments {
    connections: usize,
}

impl WriterArguments {
    pub(crate) fn of(arguments: &[String]) -> Option<Self> {
        let [name, connections, ..] = arguments else { return None };
        (name == NAME).then_some(Self { connections: connections.parse().ok()? })
    }
}

/// Accepts the connections, and writes to each of them once for each line that it reads.
pub(crate) fn write_for_ever(WriterArguments { connections }: WriterArguments) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    println!("{}", listener.local_addr().expect("a port").port());
    let accept = |_| {
        let (stream, _) = listener.accept().expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        stream
    };
    let mut streams: Vec<_> = (0..connections).map(accept).collect();
    let bytes = [b'x'; 4096];
    let total: usize = PIECES.iter().sum();
    for line in std::io::stdin().lines() {
        if line.is_err() {
            return;
        }
        for stream in &mut streams {
            let pieces = PIECES.map(|length| IoSlice::new(&bytes[..length]));
            let written = stream.write_vectored(&pieces).expect("written");
            assert_eq!(written, total, "the kernel takes a notification whole");
        }
        println!("written");
    }
}

/// Such a process, and its readers.
pub(crate) struct Floor {
    writer: Writer,
    readers: Crowd,
}

impl Floor {
    /// One that has written once.
    pub(crate) async fn start(connections: usize) -> Self {
        let writer = Writer::start(connections);
        let readers = Crowd::of_readers(writer.port, connections).await;
        let mut floor = Self { writer, readers };
        floor.turn();
        floor
    }

    /// CPU of each write when it writes to all, in µs.
    pub(crate) fn turn(&mut self) -> f64 {
        let before = ThreadTimes::read(self.writer.child.id());
        self.writer.write();
        let run = ThreadTimes::read(self.writer.child.id()).since(&before);
        self.readers.drain();
        run.as_secs_f64() * 1e6 / self.readers.len() as f64
    }
}

struct Writer {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
    port: u16,
}

impl Writer {
    fn start(connections: usize) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new("taskset")
            .args(["-c", PROXY_CORE])
            .arg(program)
            .args([NAME, &connections.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("taskset is there");
        let mut lines = BufReader::new(child.stdout.take().expect("piped"));
        let mut port = String::new();
        lines.read_line(&mut port).expect("it tells its port");
        Self { child, lines, port: port.trim().parse().expect("a port") }
    }

    /// Has it write to all connections once.
    fn write(&mut self) {
        let stdin = self.child.stdin.as_mut().expect("piped");
        stdin.write_all(b"\n").expect("it lives");
        let mut told = [0; 8];
        self.lines.read_exact(&mut told).expect("it writes");
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // It is our own child, and may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
