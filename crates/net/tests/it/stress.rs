//! Many exchanges, some abandoned at random: every answer fits its question.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Semaphore;
use wellhead_net::{HttpTransport, HttpVersion, Protocol};

use crate::h2::{Call, serve_h2};
use crate::support::*;
use crate::tls::Authority;

const EXCHANGES: usize = 2000;
const CONCURRENCY: usize = 64;
const SEED: u64 = 20_261_120;

/// Turns that a task gives to others, as the question says: `<n> <yields> …`.
async fn dawdle(question: &str) {
    let yields = question.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    for _ in 0..yields {
        tokio::task::yield_now().await;
    }
}

async fn dawdling_h1(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    while let Some(request) = read_request(&mut stream).await {
        dawdle(&request.body).await;
        let answer = ok(&request.body);
        let (head, tail) = answer.split_at(answer.len() / 2);
        for part in [head, tail] {
            if stream.write_all(part.as_bytes()).await.is_err() || stream.flush().await.is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
    }
}

async fn dawdling_h2(stream: impl AsyncRead + AsyncWrite + Unpin) {
    let handle = |mut call: Call| async move {
        let Some(body) = call.body().await else { return };
        dawdle(std::str::from_utf8(&body).expect("text")).await;
        call.answer(body);
    };
    serve_h2(stream, handle, |b| _ = b.max_concurrent_streams(30), None).await;
}

/// Runs the storm; returns how many were answered.
async fn storm(transport: &HttpTransport) -> usize {
    let mut rng = SmallRng::seed_from_u64(SEED);
    let room = Arc::new(Semaphore::new(CONCURRENCY));
    let answered = Arc::new(AtomicUsize::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..EXCHANGES {
        let permit = Arc::clone(&room).acquire_owned().await.expect("never closed");
        let size = if rng.random_bool(0.02) { 100_000 } else { rng.random_range(0..500) };
        let question = format!("{n} {} {}", rng.random_range(0..20), "x".repeat(size));
        let patience = rng.random_bool(0.25).then(|| rng.random_range(0..60));
        let (transport, answered) = (transport.clone(), Arc::clone(&answered));
        tasks.spawn(async move {
            let _permit = permit;
            let abandoned = async {
                match patience {
                    Some(turns) => {
                        for _ in 0..turns {
                            tokio::task::yield_now().await;
                        }
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                reply = ask(&transport, &question) => {
                    let reply = reply.expect("an answer");
                    assert!(reply.body == question, "{n} got another's answer");
                    answered.fetch_add(1, SeqCst);
                }
                () = abandoned => {}
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no panic");
    }
    let answered = answered.load(SeqCst);
    assert!((EXCHANGES / 2..EXCHANGES).contains(&answered), "{answered} answered");
    answered
}

#[tokio::test]
async fn over_h1() {
    let server = Server::start(|stream, _| dawdling_h1(stream)).await;
    let upstream = Upstream::h1(&server).set(|s| s.connections_max = 40);
    let transport = upstream.transport();
    storm(&transport).await;
    assert_eq!(transport.stats().waiting(), 0);
    assert!(transport.stats().open(Protocol::H1) <= 40);
}

#[tokio::test]
async fn over_h2c() {
    let server = Server::start(|stream, _| dawdling_h2(stream)).await;
    let upstream = Upstream::auto(&server).set(|s| s.h2_connections_max = 2);
    let transport = upstream.transport();
    storm(&transport).await;
    assert_eq!(transport.stats().waiting(), 0);
    assert!(transport.stats().open(Protocol::H2) <= 2, "resets cost no connection");
    assert_eq!(transport.stats().opened(Protocol::H2), 2);
}

#[tokio::test]
async fn over_tls_with_either_protocol() {
    let authority = Authority::new();
    for (alpn, version) in [("h2", HttpVersion::Auto), ("http/1.1", HttpVersion::Auto)] {
        let acceptor = authority.acceptor(&[alpn]);
        let server = Server::start(move |stream, _| {
            let acceptor = acceptor.clone();
            async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                match alpn {
                    "h2" => dawdling_h2(stream).await,
                    _ => dawdling_h1(stream).await,
                }
            }
        })
        .await;
        let url = format!("https://localhost:{}/", server.address.port());
        let mut upstream = Upstream::new(&url, version);
        authority.trusted_by(&mut upstream);
        let transport = upstream.transport();
        storm(&transport).await;
        assert_eq!(transport.stats().waiting(), 0, "{alpn}");
    }
}

/// Servers that end connections at random: failures are allowed, wrong answers are not.
#[tokio::test]
async fn connections_that_end_at_random_never_mix_answers() {
    let server = Server::start(|mut stream, nth| async move {
        let mut rng = SmallRng::seed_from_u64(SEED + nth as u64);
        while let Some(request) = read_request(&mut stream).await {
            let answer = ok(&request.body);
            let cut = match rng.random_range(0..10) {
                0 => rng.random_range(0..answer.len()),
                _ => answer.len(),
            };
            let written = stream.write_all(&answer.as_bytes()[..cut]).await;
            if written.is_err() || cut < answer.len() || rng.random_bool(0.1) {
                return;
            }
        }
    })
    .await;
    let transport = Upstream::h1(&server).transport();
    let mut answered = 0;
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..EXCHANGES {
        let transport = transport.clone();
        tasks.spawn(async move {
            let question = format!("question {n}");
            let reply = ask_within(&transport, &question, Duration::from_secs(20)).await.ok()?;
            assert_eq!(reply.body, question);
            Some(())
        });
        if tasks.len() >= CONCURRENCY {
            let done = tasks.join_next().await.expect("some");
            answered += usize::from(done.expect("no panic").is_some());
        }
    }
    while let Some(done) = tasks.join_next().await {
        answered += usize::from(done.expect("no panic").is_some());
    }
    assert!(answered > EXCHANGES * 3 / 4, "{answered} answered");
    assert_eq!(transport.stats().waiting(), 0);
}
