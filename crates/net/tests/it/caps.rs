//! Servers that end HTTP/2 connections which carry too much, and what that teaches.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::Notify;
use wellhead_net::{CloseReason, LearntCaps, Lesson, Protocol};
use wellhead_transport::{Sent, TransportErrorKind as Kind};

use crate::h2::{Call, serve_h2};
use crate::support::*;

/// A server that answers when told, and ends a connection with many streams open.
#[derive(Clone, Default)]
struct Killer {
    answer: Arc<Notify>,
    deaths: Arc<AtomicUsize>,
    peak: Arc<AtomicUsize>,
}

impl Killer {
    /// Serves until `fatal` streams are open.
    async fn serve(self, stream: TcpStream, fatal: usize) {
        let (open, die) = <(Arc<AtomicUsize>, Arc<Notify>)>::default();
        let (killer, dying) = (self.clone(), Arc::clone(&die));
        let handle = move |mut call: Call| {
            let (killer, open, die) = (killer.clone(), Arc::clone(&open), Arc::clone(&die));
            async move {
                let now = open.fetch_add(1, SeqCst) + 1;
                killer.peak.fetch_max(now, SeqCst);
                if now >= fatal {
                    die.notify_one();
                }
                killer.answer.notified().await;
                open.fetch_sub(1, SeqCst);
                if let Some(body) = call.body().await {
                    call.answer(body);
                }
            }
        };
        tokio::select! {
            () = serve_h2(stream, handle, |_| {}, None) => {}
            () = dying.notified() => {
                self.deaths.fetch_add(1, SeqCst);
            }
        }
    }
}

#[tokio::test]
async fn a_fatal_number_of_streams_is_learnt_after_one_death() {
    let killer = Killer::default();
    let serving = killer.clone();
    let server = Server::start(move |stream, _| serving.clone().serve(stream, 99)).await;
    let upstream = Upstream::auto(&server).set(|s| {
        s.h2_streams_max = 250;
        s.h2_connections_max = 4;
    });
    let transport = upstream.transport();
    let stats = transport.stats();
    let asked: Vec<_> = (0..150).map(|n| ask_aside(&transport, &format!("q{n}"))).collect();
    until("it died", || killer.deaths.load(SeqCst) == 1).await;
    until("that was noticed", || stats.learnt_caps().streams.is_some()).await;
    let learnt = stats.learnt_caps();
    assert!(learnt.streams.is_some_and(|cap| cap < 99), "{learnt:?}");
    assert_eq!(learnt.streams_lesson, Some(Lesson::Death));
    assert!(learnt.streams_fatal.is_some_and(|fatal| fatal >= 99), "{learnt:?}");
    // From now on that load is carried, whichever client asks.
    killer.peak.store(0, SeqCst);
    let other = upstream.transport();
    let again: Vec<_> = (0..250).map(|n| ask_aside(&other, &format!("again{n}"))).collect();
    let answer = Arc::clone(&killer.answer);
    let answering = tokio::spawn(async move {
        loop {
            answer.notify_waiters();
            tokio::task::yield_now().await;
        }
    });
    for (n, asked) in again.into_iter().enumerate() {
        let reply = asked.await.expect("no panic").expect("an answer");
        assert_eq!(reply.body, format!("again{n}"));
    }
    let mut lost = 0;
    for asked in asked {
        match asked.await.expect("no panic") {
            Ok(_) => {}
            Err(error) => {
                assert_eq!((error.kind, error.sent), (Kind::Closed, Sent::Maybe));
                lost += 1;
            }
        }
    }
    answering.abort();
    assert!(lost > 0);
    assert_eq!(killer.deaths.load(SeqCst), 1);
    assert!(killer.peak.load(SeqCst) < 99);
}

/// A server that counts the requests of each connection, and ends one after so many.
async fn counting(requests_max: Option<usize>) -> (Server, Arc<Mutex<Vec<usize>>>) {
    let counts: Arc<Mutex<Vec<usize>>> = Arc::default();
    let shared = Arc::clone(&counts);
    let server = Server::start(move |stream: TcpStream, nth| {
        let counts = Arc::clone(&shared);
        async move {
            counts.lock().expect("no panic").resize(nth + 1, 0);
            let handle = move |mut call: Call| {
                counts.lock().expect("no panic")[nth] += 1;
                async move {
                    match call.body().await {
                        Some(body) if &*body == b"hang" => std::future::pending().await,
                        Some(body) => call.answer(body),
                        None => {}
                    }
                }
            };
            serve_h2(stream, handle, |_| {}, requests_max).await;
        }
    })
    .await;
    (server, counts)
}

#[tokio::test]
async fn connections_are_replaced_before_the_number_of_requests_that_ends_them() {
    let (server, counts) = counting(Some(200)).await;
    let transport = Upstream::auto(&server).transport();
    let learnt = || transport.stats().learnt_caps().requests;
    for _ in 0..2000 {
        assert_eq!(answer(&transport, "question").await, "question");
        if server.accepted() >= 6 {
            break;
        }
    }
    assert_eq!(learnt(), Some(180));
    let counts = counts.lock().expect("no panic");
    // The first two were ended; the third may have been in use when that was learnt.
    assert!(counts[..2].iter().all(|count| *count >= 200), "{counts:?}");
    assert!(counts[3..5].iter().all(|count| (180..200).contains(count)), "{counts:?}");
}

/// Every second call is called off, as clients do that go away: each connection ends after 100
/// requests, of which 50 were reset, and that is no bound of the server that clients may teach.
#[tokio::test]
async fn clients_that_go_away_teach_no_bound() {
    let (server, counts) = counting(Some(100)).await;
    let transport = Upstream::auto(&server).transport();
    let asked = || counts.lock().expect("no panic").iter().sum::<usize>();
    while server.accepted() < 5 {
        assert_eq!(answer(&transport, "question").await, "question");
        let before = asked();
        let hanging = ask_aside(&transport, "hang");
        until("it arrives", || asked() > before || hanging.is_finished()).await;
        hanging.abort();
    }
    assert_eq!(transport.stats().learnt_caps(), LearntCaps::default());
}

#[tokio::test]
async fn connections_are_replaced_after_the_number_of_requests_that_is_given() {
    let (server, counts) = counting(None).await;
    let transport = Upstream::auto(&server).set(|s| s.h2_requests_max = Some(20)).transport();
    for _ in 0..65 {
        assert_eq!(answer(&transport, "question").await, "question");
    }
    let counts = counts.lock().expect("no panic");
    // One that is worn serves until the next is open.
    assert!(counts[..3].iter().all(|count| (20..=23).contains(count)), "{counts:?}");
    assert_eq!(counts.iter().sum::<usize>(), 65);
}

#[tokio::test]
async fn unused_connections_are_closed_before_the_peer_would() {
    let server = Server::start(|stream: TcpStream, _| async move {
        let handle = |mut call: Call| async move {
            if let Some(body) = call.body().await {
                call.answer(body);
            }
        };
        // All its life is silence but for one exchange at its beginning.
        let served = serve_h2(stream, handle, |_| {}, None);
        let _ = tokio::time::timeout(Duration::from_secs(20), served).await;
    })
    .await;
    let transport = Upstream::auto(&server).transport();
    let stats = transport.stats();
    let mut ended = Vec::new();
    for _ in 0..3 {
        assert_eq!(answer(&transport, "question").await, "question");
        tokio::time::pause();
        for _ in 0..600 {
            tokio::time::advance(Duration::from_millis(50)).await;
            if stats.open(Protocol::H2) == 0 {
                break;
            }
        }
        tokio::time::resume();
        until("closed", || stats.open(Protocol::H2) == 0).await;
        let mut reasons = CloseReason::ALL.into_iter();
        ended.push(reasons.find(|reason| {
            let before = ended.iter().filter(|known| **known == Some(*reason)).count();
            stats.closed(Protocol::H2, *reason) > before as u64
        }));
    }
    let (peer, idle) = (Some(CloseReason::Peer), Some(CloseReason::Idle));
    assert_eq!(ended, [peer, peer, idle]);
    let LearntCaps { idle: Some(learnt), .. } = stats.learnt_caps() else { panic!("not learnt") };
    assert!((Duration::from_secs(15)..Duration::from_secs(18)).contains(&learnt), "{learnt:?}");
}

#[tokio::test]
async fn streams_that_are_refused_beyond_a_number_teach_it() {
    let open = Arc::new(AtomicUsize::new(0));
    let (answer, refused) = <(Arc<Notify>, Arc<AtomicUsize>)>::default();
    let shared = (Arc::clone(&open), Arc::clone(&answer), Arc::clone(&refused));
    let server = Server::start(move |stream: TcpStream, nth| {
        let (open, answer, refused) = shared.clone();
        let handle = move |mut call: Call| {
            let (open, answer, refused) = (open.clone(), answer.clone(), refused.clone());
            async move {
                if nth == 0 && open.fetch_add(1, SeqCst) >= 60 {
                    refused.fetch_add(1, SeqCst);
                    return call.reply.send_reset(h2::Reason::REFUSED_STREAM);
                }
                answer.notified().await;
                if let Some(body) = call.body().await {
                    call.answer(body);
                }
            }
        };
        async move { serve_h2(stream, handle, |b| _ = b.max_concurrent_streams(200), None).await }
    })
    .await;
    let transport = Upstream::auto(&server).transport();
    let asked: Vec<_> = (0..70).map(|n| ask_aside(&transport, &format!("q{n}"))).collect();
    let stats = transport.stats();
    until("it was learnt", || stats.learnt_caps().streams == Some(60)).await;
    assert_eq!(stats.learnt_caps().streams_lesson, Some(Lesson::Refusal));
    // More than it bears, as servers do.
    assert_eq!(stats.announced_streams(), Some(200));
    until("ten were refused", || refused.load(SeqCst) == 10).await;
    let answering = tokio::spawn(async move {
        loop {
            answer.notify_waiters();
            tokio::task::yield_now().await;
        }
    });
    for (n, asked) in asked.into_iter().enumerate() {
        assert_eq!(asked.await.expect("no panic").expect("an answer").body, format!("q{n}"));
    }
    answering.abort();
    assert_eq!(stats.resent(), 10);
}
