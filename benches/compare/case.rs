//! What is compared: each case by name, with its load, its call and its figures.
//!
//! A case only says what is to be done; `turn` does it, `contender` sets up for it.

use serde_json::{Value, json};
use wellhead_e2e::Node;

use crate::client::NUMBER_DIGITS;
use crate::config::Setup;
use crate::contender::Kind;
use crate::figure::Figure;

/// The first digits of the account that a small call asks for. Where calls differ, they do so here.
const ACCOUNT_START: &str = "f39fd6e51aad88f6";
const _: () = assert!(ACCOUNT_START.len() == NUMBER_DIGITS);
/// Calls in the batch.
const BATCH_ITEMS: usize = 100;

/// One line of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray)]
pub(crate) enum Case {
    Small,
    Small4,
    Small512,
    LogOn,
    Metrics,
    Local,
    Hit,
    Http2Clients,
    Tls,
    Http2Tls,
    Batch,
    Block,
    Huge,
    Idle,
    Open500,
    Open2000,
}

wellhead_word::variants!(Case);

/// What the other side does meanwhile.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Load {
    /// wrk: as many requests as are answered, one at a time on each connection.
    Closed { connections: u32 },
    /// h2load: the same over HTTP/2, several at a time on each connection.
    Http2 { connections: u32, streams: u32 },
    /// Each connection takes so many answers and looks that they are whole.
    Pull { connections: u32, answers: u32 },
    /// Connections that made one call and stay.
    Idle { connections: u32 },
    /// So many requests a second, whether or not the last is answered.
    Open { per_second: u32 },
}

impl Case {
    /// What a plain `make bench` runs: the rest needs more patience.
    pub(crate) const USUAL: [Self; 7] =
        [Self::Small, Self::Local, Self::Hit, Self::Batch, Self::Block, Self::Huge, Self::Open2000];

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|case| case.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Small4 => "small-4",
            Self::Small512 => "small-512",
            Self::LogOn => "log-on",
            Self::Metrics => "metrics",
            Self::Local => "local",
            Self::Hit => "hit",
            Self::Http2Clients => "h2-clients",
            Self::Tls => "tls",
            Self::Http2Tls => "h2-tls",
            Self::Batch => "batch",
            Self::Block => "block",
            Self::Huge => "huge",
            Self::Idle => "idle",
            Self::Open500 => "open-500",
            Self::Open2000 => "open-2000",
        }
    }

    pub(crate) fn about(self) -> &'static str {
        match self {
            Self::Small => {
                "one eth_call at a time on each of 64 connections, each another one, logs off"
            }
            Self::Small4 => "one eth_call at a time on each of 4 connections",
            Self::Small512 => "one eth_call at a time on each of 512 connections",
            Self::LogOn => "as small, with a line of log for each request, to /dev/null",
            Self::Metrics => "as small, with the metrics of each read once a second",
            Self::Local => "eth_chainId, 64 connections: wellhead answers it, the others ask",
            Self::Hit => "as small, at a final height: wellhead keeps it, the others ask",
            Self::Http2Clients => "one eth_call, clients speak HTTP/2: 8 connections x 8 streams",
            Self::Tls => "as small, under TLS",
            Self::Http2Tls => "as h2-clients, under TLS",
            Self::Batch => "100 eth_getBalance in a body, 16 connections",
            Self::Block => "a block of 300 KB, 64 connections",
            Self::Huge => "a trace of 20 MB, 50 at a time, read whole",
            Self::Idle => "10,000 connections that made one call and stay open",
            Self::Open500 => "500 eth_call a second: latency beyond that of the bare upstream",
            Self::Open2000 => "2,000 eth_call a second: latency beyond that of the bare upstream",
        }
    }

    pub(crate) fn load(self) -> Load {
        match self {
            Self::Small
            | Self::LogOn
            | Self::Metrics
            | Self::Local
            | Self::Hit
            | Self::Tls
            | Self::Block => Load::Closed { connections: 64 },
            Self::Small4 => Load::Closed { connections: 4 },
            Self::Small512 => Load::Closed { connections: 512 },
            Self::Http2Clients | Self::Http2Tls => Load::Http2 { connections: 8, streams: 8 },
            Self::Batch => Load::Closed { connections: 16 },
            Self::Huge => Load::Pull { connections: 50, answers: 2 },
            Self::Idle => Load::Idle { connections: 10_000 },
            Self::Open500 => Load::Open { per_second: 500 },
            Self::Open2000 => Load::Open { per_second: 2000 },
        }
    }

    /// How the contenders are set up for it.
    pub(crate) fn setup(self) -> Setup<'static> {
        Setup {
            log: self == Self::LogOn,
            metrics: self == Self::Metrics,
            tls: matches!(self, Self::Tls | Self::Http2Tls),
            many_connections: matches!(self.load(), Load::Idle { .. }),
            keeps: self == Self::Hit,
            calls_differ: self.calls_differ(),
            disk: None,
        }
    }

    /// The contenders, nginx first.
    pub(crate) fn kinds(self) -> &'static [Kind] {
        match self {
            // What goes upstream does not differ where nothing does.
            Self::Hit => &[Kind::Nginx, Kind::HaProxy, Kind::Wellhead, Kind::WellheadTraced],
            Self::Local | Self::Idle => &Kind::ALL[..3],
            Self::Small => &Kind::AND_TRACED,
            Self::Small4 | Self::Small512 | Self::Block => &Kind::ALL,
            // Batches and traces do not go over WebSocket, and the rest would say the same.
            _ => &Kind::ALL[..4],
        }
    }

    /// What is told of it; the first is what counts most.
    pub(crate) fn figures(self) -> &'static [Figure] {
        match self.load() {
            Load::Closed { .. } | Load::Http2 { .. } => {
                &[Figure::Cost, Figure::Rate, Figure::Calls, Figure::Peak]
            }
            Load::Pull { .. } => &[Figure::Cost, Figure::Growth],
            Load::Idle { .. } => &[Figure::Resident],
            Load::Open { .. } => {
                &[Figure::AddedP50, Figure::AddedP99, Figure::AddedP999, Figure::Cost]
            }
        }
    }

    /// Whether each call asks for another account, so that wellhead runs with its defaults: it keeps
    /// answers, and none of them is of use. h2load sends one body, and so do the loads of large
    /// answers, of batches and of idle connections.
    fn calls_differ(self) -> bool {
        match self {
            Self::Small
            | Self::Small4
            | Self::Small512
            | Self::LogOn
            | Self::Metrics
            | Self::Tls
            | Self::Open500
            | Self::Open2000 => true,
            Self::Local
            | Self::Hit
            | Self::Http2Clients
            | Self::Http2Tls
            | Self::Batch
            | Self::Block
            | Self::Huge
            | Self::Idle => false,
        }
    }

    /// Where the number of a call stands in `body`, if calls differ.
    pub(crate) fn number_at(self, body: &str) -> Option<usize> {
        self.calls_differ().then(|| body.find(ACCOUNT_START).expect("`small` writes it"))
    }

    /// The body that every request of the case has, but for the number of a call.
    pub(crate) async fn body(self, upstream: &Node) -> String {
        match self {
            Self::Local => call(1, "eth_chainId", &json!([])).to_string(),
            Self::Batch => {
                let address = |index: usize| format!("0x{:040x}", 0xf39f_d6e5_1aad + index);
                let calls = (1..=BATCH_ITEMS)
                    .map(|index| call(index, "eth_getBalance", &json!([address(index), "latest"])));
                Value::Array(calls.collect()).to_string()
            }
            Self::Block => {
                let newest = upstream.rpc().result("eth_getBlockByNumber", json!(["latest", true]));
                let hash = newest.await.expect("the upstream has a block")["hash"].take();
                call(1, "eth_getBlockByHash", &json!([hash, true])).to_string()
            }
            Self::Huge => call(1, "debug_traceBlockByNumber", &json!(["latest"])).to_string(),
            Self::Hit => small(FINAL).to_string(),
            Self::Small
            | Self::Small4
            | Self::Small512
            | Self::LogOn
            | Self::Metrics
            | Self::Http2Clients
            | Self::Tls
            | Self::Http2Tls
            | Self::Idle
            | Self::Open500
            | Self::Open2000 => small("latest").to_string(),
        }
    }
}

/// Final on every chain of more than an hour.
pub(crate) const FINAL: &str = "0x10";

/// A balance of a token.
fn small(block: &str) -> Value {
    let balance_of = format!("0x70a08231{:024}{ACCOUNT_START}f4ce6ab8827279cfffb92266", 0);
    let to = "0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48";
    call(1, "eth_call", &json!([{ "to": to, "data": balance_of }, block]))
}

pub(crate) fn call(id: usize, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}
