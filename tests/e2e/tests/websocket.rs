//! The WebSocket codec against the cases of the Autobahn test suite, which kosoku runs.
//!
//! They speak to a server that returns each message, so one stands here, in this process: the
//! codec and a socket, and nothing else of wellhead. Each case passes in full; there is no
//! deviation to name.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may stop where it likes")]

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::time::timeout;
use wellhead_e2e::cache;
use wellhead_http1::request::{Room, head};
use wellhead_websocket::handshake::{UpgradeRequest, accept};
use wellhead_websocket::{
    CloseFrame, DecodeStep, MessageDecoder, MessageLimits, WsEvent, WsRole, encode,
};

/// Far more than all cases take, for a machine that is busy.
const CASES_MAX: Duration = Duration::from_secs(600);
/// The largest messages of the cases have 16 MiB, and the most fragments are of 64 bytes in 4 MiB.
const LIMITS: MessageLimits = MessageLimits { message_bytes_max: 16 << 20, fragments_max: 1 << 16 };
/// As the listeners read.
const READ_BYTES: usize = 64 << 10;

/// Serves each connection until the test ends.
async fn serve(listener: TcpListener) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        tokio::spawn(async move {
            // The cases break connections on purpose; kosoku says which break was wrong.
            let _ = echo(stream).await;
        });
    }
}

/// One connection: the handshake, and each message back.
async fn echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; READ_BYTES];
    let Some(mut ahead) = upgrade(&mut stream, &mut buffer).await? else { return Ok(()) };
    let mut decoder = MessageDecoder::new(WsRole::Server);
    loop {
        let mut rest = &mut ahead[..];
        loop {
            let DecodeStep { used, event } = match decoder.decode(&LIMITS, rest) {
                Ok(step) => step,
                Err(error) => {
                    stream.write_all(&encode::close(&CloseFrame::from(error))).await?;
                    return part(stream, &mut buffer).await;
                }
            };
            match event {
                None => break,
                Some(WsEvent::Message { kind, payload }) => {
                    stream.write_all(&encode::message_header(kind, payload.len())).await?;
                    stream.write_all(&payload).await?;
                }
                Some(WsEvent::Ping(payload)) => stream.write_all(&encode::pong(&payload)).await?,
                Some(WsEvent::Pong(_)) => {}
                Some(WsEvent::Close(frame)) => {
                    stream.write_all(&encode::close(&frame)).await?;
                    return part(stream, &mut buffer).await;
                }
            }
            rest = &mut rest[used..];
        }
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        ahead.clear();
        ahead.extend_from_slice(&buffer[..read]);
    }
}

/// Answers the upgrade; returns what came behind it, or nothing if it was refused.
async fn upgrade(stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<Option<Vec<u8>>> {
    let mut filled = 0;
    loop {
        let read = stream.read(&mut buffer[filled..]).await?;
        if read == 0 {
            return Ok(None);
        }
        filled += read;
        let mut room = Room::new();
        let Ok(parsed) = head(&buffer[..filled], READ_BYTES, &mut room) else { return Ok(None) };
        let Some(request) = parsed else { continue };
        let fields = request.headers.iter().map(|field| (field.name, field.value));
        let upgrade = UpgradeRequest { method: request.method, newest: request.newest, fields };
        let Ok(key) = accept(upgrade) else { return Ok(None) };
        let answer = format!(
            "HTTP/1.1 101 Switching Protocols\r\nserver: wellhead\r\nupgrade: websocket\r\n\
             connection: upgrade\r\nsec-websocket-accept: {}\r\n\r\n",
            key.as_str(),
        );
        stream.write_all(answer.as_bytes()).await?;
        return Ok(Some(buffer[request.len..filled].to_vec()));
    }
}

/// Closes so that the last frame is not lost: unread bytes would reset the connection.
async fn part(mut stream: TcpStream, buffer: &mut [u8]) -> io::Result<()> {
    stream.shutdown().await?;
    while stream.read(buffer).await? > 0 {}
    Ok(())
}

/// What kosoku says of each case: of the messages, and of the close.
async fn results() -> BTreeMap<String, (String, String)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(serve(listener));
    let report = tempfile::tempdir().unwrap();
    let program = cache().join("kosoku/bin/kosoku");
    let running = Command::new(&program)
        .args([&url, "--exclude", "12.*", "--exclude", "13.*", "--parallelism", "4", "--outdir"])
        .arg(report.path())
        .kill_on_drop(true)
        .output();
    let output = timeout(CASES_MAX, running)
        .await
        .unwrap_or_else(|_| panic!("kosoku is not done after {CASES_MAX:?}"))
        .unwrap_or_else(|why| panic!("{}: {why}; `scripts/setup test`", program.display()));
    server.abort();
    print!("{}", String::from_utf8_lossy(&output.stdout));
    print!("{}", String::from_utf8_lossy(&output.stderr));
    let index = std::fs::read(report.path().join("index.json")).unwrap();
    let index: Value = serde_json::from_slice(&index).unwrap();
    let cases = index.as_object().unwrap().values().next().unwrap().as_object().unwrap();
    let word = |case: &Value, key: &str| case[key].as_str().unwrap().to_owned();
    cases
        .iter()
        .map(|(id, case)| (id.clone(), (word(case, "behavior"), word(case, "behaviorClose"))))
        .collect()
}

/// The cases whose outcome RFC 6455 leaves open: kosoku does not judge them, whatever happens. In
/// 7.1.6 a close follows 256 KB that a server may or may not send back before it closes, in 7.13.1
/// and 7.13.2 the close code is not one of those on the wire.
const NOT_JUDGED: [&str; 3] = ["7.1.6", "7.13.1", "7.13.2"];
/// All cases of version 0.1.0 but those of compression, groups 12 and 13.
const CASES: usize = 301;

mod with_kosoku {
    #[tokio::test]
    async fn every_case_but_those_of_compression() {
        let results = crate::results().await;
        for (id, (behavior, close)) in &results {
            let expected = if crate::NOT_JUDGED.contains(&&**id) { "INFORMATIONAL" } else { "OK" };
            assert_eq!((&**behavior, &**close), (expected, expected), "case {id}");
        }
        assert_eq!(results.len(), crate::CASES);
    }
}
