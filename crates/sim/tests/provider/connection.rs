//! Protocols, caps on streams, and the ends of connections.

use bytes::Bytes;
use h2::Reason;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rustls_pki_types::ServerName;
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use wellhead_sim::node::LatencyDial;
use wellhead_sim::provider::{DrawnDial, Preset, StreamCap, StreamWay};
use wellhead_sim::{FakeProvider, ProviderDials};

use crate::client::{Http1, Http2, Open, block_number, call, provider, tls, until, within, world};

fn capped(max: u32, way: StreamWay) -> FakeProvider {
    provider(ProviderDials { stream_cap: Some(StreamCap { max, way }), ..ProviderDials::default() })
}

async fn begin(client: &mut Http2, streams: usize) -> Vec<Open> {
    let mut open = Vec::new();
    for _ in 0..streams {
        open.push(client.try_begin().await.unwrap());
    }
    open
}

#[tokio::test]
async fn both_protocols_tell_the_truth() {
    let provider = provider(ProviderDials::default());
    let (mut one, mut two) = (Http1::open(&provider).await, Http2::open(&provider).await);
    for params in [json!(["0x5", false]), json!(["latest", true]), json!(["0x500", true])] {
        let truth = provider.node().ask("eth_getBlockByNumber", Some(&params)).unwrap();
        let body = call("eth_getBlockByNumber", &params);
        let expected = json!({"jsonrpc": "2.0", "id": 7, "result": truth});
        assert_eq!(one.ask(&body).await.body, expected);
        assert_eq!(two.ask(&body).await.body, expected);
    }
    let counts = provider.counts();
    assert_eq!((counts.connections, counts.http2), (2, 1));
    assert_eq!((counts.requests, counts.calls, counts.refusals), (6, 6, 0));
}

#[tokio::test]
async fn tls_agrees_on_what_both_speak() {
    for (http2, offered, expected) in [
        (true, &[&b"h2"[..], b"http/1.1"][..], &b"h2"[..]),
        (true, &[b"http/1.1"], b"http/1.1"),
        (false, &[b"h2", b"http/1.1"], b"http/1.1"),
    ] {
        let (tls, connector) = tls();
        let dials = ProviderDials { http2, ..ProviderDials::default() };
        let provider = FakeProvider::start_tls("provider", world(), dials, tls).unwrap();
        assert!(provider.url().starts_with("https://127.0.0.1:"));
        let stream = TcpStream::connect(provider.addr()).await.unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let stream = within(connector(offered).connect(name, stream)).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(expected));
        let told = match expected {
            b"h2" => Http2::over(stream).await.ask(&block_number()).await,
            _ => Http1::over(stream).await.ask(&block_number()).await,
        };
        assert_eq!(told.body["result"], "0x10");
    }
}

#[tokio::test]
async fn without_http2_its_preface_is_not_understood() {
    let provider = provider(ProviderDials { http2: false, ..ProviderDials::default() });
    assert!(Http2::open(&provider).await.try_ask(&block_number()).await.is_err());
    assert_eq!(Http1::open(&provider).await.ask(&block_number()).await.body["result"], "0x10");
    assert_eq!(provider.counts().http2, 0);
}

#[tokio::test]
async fn an_announced_cap_is_in_the_settings() {
    let provider = capped(3, StreamWay::Announced);
    let mut client = Http2::open(&provider).await;
    client.ask(&block_number()).await;
    assert_eq!(client.client.current_max_send_streams(), 3);
    for open in begin(&mut client, 3).await {
        assert_eq!(open.finish(&block_number()).await.unwrap().body["result"], "0x10");
    }
    assert_eq!(provider.counts().streams_peak, 3);
    assert_eq!(provider.counts().refused_streams, 0);
}

#[tokio::test]
async fn nothing_is_announced_where_there_is_no_cap() {
    let provider = provider(ProviderDials::default());
    let mut client = Http2::open(&provider).await;
    client.ask(&block_number()).await;
    assert_eq!(client.client.current_max_send_streams(), usize::MAX);
    for open in begin(&mut client, 500).await {
        open.finish(&block_number()).await.unwrap();
    }
    assert_eq!(provider.counts().streams_peak, 500);
}

#[tokio::test]
async fn a_stream_above_the_cap_is_refused_and_the_others_go_on() {
    let provider = capped(3, StreamWay::Refused { announced: Some(9) });
    let mut client = Http2::open(&provider).await;
    let mut open = begin(&mut client, 5).await;
    for mut refused in open.split_off(3) {
        let error = refused.headers().await.unwrap_err();
        assert!(error.is_reset() && error.is_remote(), "{error}");
        assert_eq!(error.reason(), Some(Reason::REFUSED_STREAM));
    }
    for open in open {
        assert_eq!(open.finish(&block_number()).await.unwrap().body["result"], "0x10");
    }
    assert_eq!(client.client.current_max_send_streams(), 9);
    client.ask(&block_number()).await;
    let counts = provider.counts();
    assert_eq!((counts.refused_streams, counts.streams_peak, counts.requests), (2, 3, 4));
    assert_eq!((counts.goaways, counts.fatal), (0, 0));
}

#[tokio::test]
async fn a_fatal_cap_ends_the_connection_with_its_code() {
    for (goaway, expected) in [(Some(1), Some(1)), (Some(11), Some(11)), (None, None)] {
        let provider = capped(3, StreamWay::Fatal { goaway, announced: Some(128) });
        let mut client = Http2::open(&provider).await;
        // At the cap nothing happens, as often as one likes.
        for _ in 0..2 {
            for open in begin(&mut client, 3).await {
                open.finish(&block_number()).await.unwrap();
            }
        }
        assert_eq!(client.client.current_max_send_streams(), 128);
        for mut open in begin(&mut client, 4).await {
            assert!(open.headers().await.is_err());
        }
        assert_eq!(client.end().await, expected);
        let counts = provider.counts();
        assert_eq!((counts.fatal, counts.goaways), (1, u64::from(goaway.is_some())));
        assert_eq!((counts.streams_peak, counts.requests), (3, 6));
        // The next connection is as good as the first.
        Http2::open(&provider).await.ask(&block_number()).await;
    }
}

#[tokio::test]
async fn every_drawn_cap_is_where_it_is_said_to_be() {
    for seed in 0..20 {
        let dials = ProviderDials::draw(&mut SmallRng::seed_from_u64(seed), DrawnDial::Streams);
        let cap = dials.stream_cap.unwrap();
        let provider = provider(ProviderDials { latency: LatencyDial::NONE, ..dials });
        let mut client = Http2::open(&provider).await;
        client.ask(&block_number()).await;
        let announced = client.client.current_max_send_streams();
        let seen = match cap.way {
            StreamWay::Announced => announced,
            StreamWay::Refused { .. } | StreamWay::Fatal { .. } => {
                assert_eq!(announced, cap.announced().map_or(usize::MAX, |max| max as usize));
                let mut open = begin(&mut client, cap.max as usize + 1).await;
                assert!(open.pop().unwrap().headers().await.is_err(), "{cap:?}");
                let fatal = matches!(cap.way, StreamWay::Fatal { .. });
                let mut fine = 0;
                for open in open {
                    fine += usize::from(open.finish(&block_number()).await.is_ok());
                }
                assert_eq!(fine, if fatal { 0 } else { cap.max as usize }, "{cap:?}");
                provider.counts().streams_peak as usize
            }
        };
        assert_eq!(seen, cap.max as usize, "seed {seed}");
    }
}

#[tokio::test]
async fn a_client_that_gives_up_frees_its_place() {
    let provider = capped(1, StreamWay::Refused { announced: None });
    let hour = Duration::from_secs(3600);
    provider.turn(|dials| dials.latency = LatencyDial::even(hour, Duration::ZERO));
    let mut client = Http2::open(&provider).await;
    let given_up = client.try_begin().await.unwrap();
    until(&provider, |counts| counts.streams_peak == 1).await;
    drop(given_up);
    provider.turn(|dials| dials.latency = LatencyDial::NONE);
    assert_eq!(client.ask(&block_number()).await.body["result"], "0x10");
    assert_eq!(provider.counts().refused_streams, 0);
}

#[tokio::test]
async fn http1_says_close_with_the_last_answer() {
    let provider = provider(ProviderDials { recycle_after: Some(3), ..ProviderDials::default() });
    let mut client = Http1::open(&provider).await;
    for last in [false, false, true] {
        let told = client.ask(&block_number()).await;
        assert_eq!((told.closes, &told.body["result"]), (last, &json!("0x10")));
    }
    assert!(client.try_ask(&block_number()).await.is_err());
    let counts = provider.counts();
    assert_eq!((counts.recycled, counts.requests, counts.goaways), (1, 3, 0));
}

#[tokio::test]
async fn http2_is_told_goaway_and_what_is_under_way_is_answered() {
    let provider = provider(ProviderDials { recycle_after: Some(3), ..ProviderDials::default() });
    let mut client = Http2::open(&provider).await;
    let open = begin(&mut client, 3).await;
    until(&provider, |counts| counts.goaways == 1).await;
    for open in open {
        assert_eq!(open.finish(&block_number()).await.unwrap().body["result"], "0x10");
    }
    // In good order is no error at all.
    assert!(within(&mut client.ended).await.unwrap().is_ok());
    assert!(client.try_begin().await.is_err());
    let counts = provider.counts();
    assert_eq!((counts.recycled, counts.goaways, counts.requests), (1, 1, 3));
}

#[tokio::test]
async fn every_drawn_recycling_is_where_it_is_said_to_be() {
    for seed in 0..3 {
        let dials = ProviderDials::draw(&mut SmallRng::seed_from_u64(seed), DrawnDial::Recycle);
        let after = dials.recycle_after;
        let provider = provider(ProviderDials { latency: LatencyDial::NONE, ..dials });
        let mut client = Http1::open(&provider).await;
        let mut asked = 1;
        while !client.ask(&block_number()).await.closes {
            asked += 1;
        }
        assert_eq!(after, Some(asked));
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let idle_close = Some(Duration::from_millis(1));
    let provider = provider(ProviderDials { idle_close, ..ProviderDials::default() });
    // Never a byte, then the beginning of a request, then HTTP/2.
    let mut silent = TcpStream::connect(provider.addr()).await.unwrap();
    assert_eq!(within(silent.read(&mut [0; 1])).await.unwrap(), 0);
    let mut stuck = TcpStream::connect(provider.addr()).await.unwrap();
    stuck.write_all(b"POST / HTTP/1.1\r\n").await.unwrap();
    assert_eq!(within(stuck.read(&mut [0; 1])).await.unwrap(), 0);
    drop(stuck);
    let mut client = Http2::open(&provider).await;
    assert!(within(&mut client.ended).await.unwrap().is_ok());
    let counts = provider.counts();
    assert_eq!((counts.idle_closed, counts.goaways, counts.requests), (3, 1, 0));
}

#[tokio::test]
async fn a_turned_dial_reaches_an_idle_connection() {
    let provider = provider(ProviderDials::default());
    let (mut one, mut two) = (Http1::open(&provider).await, Http2::open(&provider).await);
    one.ask(&block_number()).await;
    two.ask(&block_number()).await;
    provider.turn(|dials| dials.idle_close = Some(Duration::from_millis(1)));
    assert!(within(&mut two.ended).await.unwrap().is_ok());
    until(&provider, |counts| counts.idle_closed == 2).await;
    assert!(one.try_ask(&block_number()).await.is_err());
}

#[tokio::test]
async fn a_slow_body_comes_in_pieces() {
    let provider = provider(ProviderDials::default());
    let body = call("eth_getBlockByNumber", &json!(["latest", true]));
    let mut client = Http2::open(&provider).await;
    let whole = client.try_begin().await.unwrap().frames(&body).await.concat();
    assert!(whole.len() > 2000);
    provider.turn(|dials| dials.body_bytes_per_second = Some(20_000));
    let frames = client.try_begin().await.unwrap().frames(&body).await;
    assert_eq!(frames.concat(), whole);
    let sizes: Vec<usize> = frames.iter().map(Bytes::len).filter(|size| *size > 0).collect();
    assert_eq!(sizes.len(), whole.len().div_ceil(1000), "{sizes:?}");
    let told = Http1::open(&provider).await.ask(&body).await;
    assert_eq!(told.body, serde_json::from_slice::<serde_json::Value>(&whole).unwrap());
}

#[tokio::test]
async fn presets_announce_what_they_announce() {
    for preset in Preset::ALL {
        let provider = provider(preset.dials());
        let mut client = Http2::open(&provider).await;
        assert_eq!(client.ask(&block_number()).await.body["result"], "0x10");
        assert_eq!(client.client.current_max_send_streams(), 128, "{preset:?}");
    }
}

#[tokio::test]
async fn what_is_not_json_rpc_over_post_is_refused() {
    let provider = provider(ProviderDials::default());
    for (request, expected) in [
        ("GET / HTTP/1.1\r\nhost: a\r\n\r\n", "HTTP/1.1 405 "),
        ("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", "HTTP/1.1 411 "),
    ] {
        let mut stream = TcpStream::connect(provider.addr()).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut told = vec![0; expected.len()];
        within(stream.read_exact(&mut told)).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&told), expected);
    }
    assert_eq!(Http1::open(&provider).await.ask("{").await.code(), Some(-32700));
}
